//! TCP connections as the kernel tells of them (sock_diag(7)): round trips, what was sent again, and what the sender waited for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// One connection, since it began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Socket {
    /// Names it among the descriptors of its process. The kernel's own have one too.
    pub inode: u64,
    pub peer: IpAddr,
    pub peer_port: u16,
    pub port: u16,
    pub round_trip_ms: f64,
    pub least_round_trip_ms: f64,
    /// While something that was sent was not acknowledged, in seconds.
    pub busy_seconds: f64,
    /// Of these, because the peer had no room for more.
    pub peer_full_seconds: f64,
    pub segments_sent: u64,
    pub segments_again: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    is_established: bool,
}

impl Socket {
    /// Whether it is a connection that data goes over.
    pub fn is_connected(&self) -> bool {
        self.is_established
    }
}

/// All of this network namespace.
pub(crate) fn list() -> io::Result<Vec<Socket>> {
    let mut all = Vec::new();
    for family in [AF_INET, AF_INET6] {
        all.extend(dump(family)?);
    }
    Ok(all)
}

fn dump(family: u8) -> io::Result<Vec<Socket>> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    sendto(&socket, &request(family), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let (mut all, mut buffer) = (Vec::new(), vec![0u8; BUFFER]);
    loop {
        let (len, _) = recv(&socket, &mut *buffer, RecvFlags::empty())?;
        let (found, is_done) = parse(&buffer[..len]);
        all.extend(found);
        if is_done || len == 0 {
            return Ok(all);
        }
    }
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
fn request(family: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST_LEN);
    bytes.extend((REQUEST_LEN as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    bytes.extend(ALL_STATES.to_ne_bytes());
    bytes.resize(REQUEST_LEN, 0);
    bytes
}

/// Messages in one datagram, and whether the last of all was among them.
fn parse(mut bytes: &[u8]) -> (Vec<Socket>, bool) {
    let mut found = Vec::new();
    while let (Some(len), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let len = len as usize;
        if len < HEADER || len > bytes.len() || kind == NLMSG_DONE || kind == NLMSG_ERROR {
            return (found, true);
        }
        found.extend(Socket::parse(&bytes[HEADER..len]));
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    (found, false)
}

impl Socket {
    /// `struct inet_diag_msg` and its attributes, of which `INET_DIAG_INFO` holds `struct tcp_info`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (family, state) = (*bytes.first()?, *bytes.get(1)?);
        let port = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let peer = match family {
            AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(24..28)?).ok()?)),
            _ => plain(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(24..40)?).ok()?)),
        };
        let info = attribute(bytes.get(DIAG_LEN..)?, u16::from(INET_DIAG_INFO))?;
        let number = |at| u32_at(info, at).unwrap_or(0);
        let long = |at| u64_at(info, at).unwrap_or(0);
        Some(Self {
            inode: u64::from(u32_at(bytes, 68)?),
            peer,
            port: port(4)?,
            peer_port: port(6)?,
            round_trip_ms: f64::from(number(68)) / 1e3,
            // Nothing measured yet is all ones.
            least_round_trip_ms: f64::from(Some(number(148)).filter(|us| *us != u32::MAX).unwrap_or(0)) / 1e3,
            busy_seconds: long(168) as f64 / 1e6,
            peer_full_seconds: long(176) as f64 / 1e6,
            segments_sent: u64::from(number(136)),
            segments_again: u64::from(number(100)),
            bytes_sent: long(200),
            bytes_received: long(128),
            is_established: state == ESTABLISHED,
        })
    }
}

/// An address of version 4 in the clothes of version 6 is one of version 4.
fn plain(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
        let value = bytes.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const INET_DIAG_INFO: u8 = 2;
const ALL_STATES: u32 = u32::MAX;
const ESTABLISHED: u8 = 1;
/// Lengths of `struct nlmsghdr`, of it with `struct inet_diag_req_v2`, and of `struct inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST_LEN: usize = 72;
const DIAG_LEN: usize = 72;
/// The kernel fills no more at once.
const BUFFER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Goal: connections are found, with what went over them. Method: one of our own.
    #[test]
    fn a_connection_of_our_own_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[1; 5000]).unwrap();
            server.read_exact(&mut [0; 5000]).unwrap();
            let port = client.local_addr().unwrap().port();
            let all = list().unwrap();
            let own = all.iter().find(|socket| socket.port == port && socket.is_connected()).unwrap();
            assert!(own.peer.is_loopback() && own.inode > 0, "{own:?}");
            assert_eq!(own.peer_port, listener.local_addr().unwrap().port());
            assert!(own.bytes_sent >= 5000 && own.segments_sent > 0 && own.round_trip_ms > 0.0, "{own:?}");
        }
    }

    #[test]
    fn what_is_cut_short_is_nothing() {
        let whole = request(AF_INET);
        assert_eq!(whole.len(), REQUEST_LEN);
        for len in 0..whole.len() {
            parse(&whole[..len]);
            assert_eq!(Socket::parse(&whole[..len]), None);
        }
        assert_eq!(attribute(&[4, 0, 1, 0, 3, 0], 2), None);
        assert_eq!(attribute(&[0, 0, 1, 0], 2), None, "no length, no end");
    }
}
