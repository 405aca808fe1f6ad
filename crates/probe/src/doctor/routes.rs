//! Which link leads to an address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// By the kernel's main table.
pub(crate) fn link_to(peer: IpAddr) -> Option<String> {
    match peer {
        IpAddr::V4(peer) => in_v4(&fs::read_to_string("/proc/net/route").ok()?, peer),
        IpAddr::V6(peer) => in_v6(&fs::read_to_string("/proc/net/ipv6_route").ok()?, peer),
    }
}

/// `LINK DESTINATION GATEWAY FLAGS REFCNT USE METRIC MASK ...`, numbers in hexadecimal, addresses as they lie in memory.
fn in_v4(table: &str, peer: Ipv4Addr) -> Option<String> {
    let peer = u32::from_le_bytes(peer.octets());
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (to, mask) = (hex(1)?, hex(7)?);
        (peer & mask == to).then(|| (mask.count_ones(), words[0].to_owned()))
    };
    table.lines().filter_map(route).max_by_key(|(len, _)| *len).map(|(_, link)| link)
}

/// `DESTINATION LEN SOURCE LEN GATEWAY METRIC REFCNT USE FLAGS LINK`, in hexadecimal.
fn in_v6(table: &str, peer: Ipv6Addr) -> Option<String> {
    let peer = u128::from(peer);
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let to = u128::from_str_radix(words.first()?, 16).ok()?;
        let len = u32::from_str_radix(words.get(1)?, 16).ok().filter(|len| *len <= 128)?;
        let link = *words.get(9)?;
        let rest = 128 - len;
        let is_in = rest == 128 || peer >> rest == to >> rest;
        (is_in && link != "lo").then(|| (len, link.to_owned()))
    };
    table.lines().filter_map(route).max_by_key(|(len, _)| *len).map(|(_, link)| link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_route_wins() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                     eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     veth1\t0000630A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        assert_eq!(in_v4(table, Ipv4Addr::new(10, 99, 0, 2)).as_deref(), Some("veth1"));
        assert_eq!(in_v4(table, Ipv4Addr::new(10, 98, 0, 2)).as_deref(), Some("eth0"));
        assert_eq!(in_v4("", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn and_of_the_longer_addresses() {
        let table = "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1\n\
                     00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003     eth0\n";
        assert_eq!(in_v6(table, "fd00::7".parse().unwrap()).as_deref(), Some("eth1"));
        assert_eq!(in_v6(table, "2001:db8::1".parse().unwrap()).as_deref(), Some("eth0"));
        assert_eq!(in_v6("x", Ipv6Addr::LOCALHOST), None);
    }
}
