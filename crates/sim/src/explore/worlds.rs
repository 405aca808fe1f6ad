//! The worlds: who does what to two directories and three files.
//!
//! Each begins with the directories `d` and `e`, the files `d/a` (four bytes), `d/b` (empty) and `e/c` (four bytes),
//! and the empty directory `e/s`, all durable.

/// A directory that a step names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dir {
    /// The root.
    Root,
    /// `/d`.
    D,
    /// `/e`.
    E,
    /// `/e/s`.
    S,
}

/// One request of a process. What a process has looked up or made is its *file*, and what it opened stays open until
/// it closes it. A step about a file that was not found is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the system calls")]
pub enum Step {
    Create(Dir, &'static str),
    Mkdir(Dir, &'static str),
    Unlink(Dir, &'static str),
    Rmdir(Dir, &'static str),
    Rename(Dir, &'static str, Dir, &'static str),
    Link(Dir, &'static str),
    Lookup(Dir, &'static str),
    List(Dir),
    Stat,
    Chmod(u32),
    Truncate(u64),
    OpenToRead,
    OpenToWrite,
    Write(u64, &'static str),
    Append(&'static str),
    Read,
    Fsync,
    Close,
}

/// What the nodes have in their caches when the processes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warmth {
    /// Nothing.
    Cold,
    /// One node holds both directories in EX.
    Held(usize),
    /// All have read everything.
    Shared,
}

/// What may go wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The master dies.
    Master,
    /// A node dies.
    Node(usize),
    /// Power fails; everything unsynced is lost, or nothing, or a part.
    Power,
    /// A connection breaks; of what was sent to the master nothing arrives, or all, or a part.
    Break(usize),
    /// A node's machine stands still for longer than a lease.
    Pause(usize),
    /// A node and the master do not reach each other for longer than a lease, both ways or one way.
    Cut(usize),
}

impl Fault {
    /// Whether memberships of nodes that live may end by it.
    pub(crate) fn may_end_memberships(self) -> bool {
        matches!(self, Self::Break(_) | Self::Pause(_) | Self::Cut(_))
    }
}

/// A world.
#[derive(Clone, Debug)]
pub struct World {
    /// Its name.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// What each process does: process n is on node n.
    pub scripts: Vec<Vec<Step>>,
    /// What is cached at first.
    pub warmth: Warmth,
    /// What may happen, once.
    pub faults: Vec<Fault>,
}

use Dir::{D, E, Root, S};
use Step::{
    Append, Chmod, Close, Create, Fsync, Link, List, Lookup, Mkdir, OpenToRead, OpenToWrite, Read, Rename,
    Rmdir, Stat, Truncate, Unlink, Write,
};

/// What two processes do, and perhaps a third who looks on.
type Plot = (&'static str, Vec<Vec<Step>>, Vec<Fault>);

/// As [`worlds`], with broken connections and ended leases instead of deaths.
pub fn worlds_with_troubles() -> Vec<World> {
    let of_node = |node| [Fault::Break(node), Fault::Pause(node), Fault::Cut(node)];
    let troubles = [of_node(0), of_node(1)].concat();
    worlds().into_iter().map(|world| World { faults: troubles.clone(), ..world }).collect()
}

/// All worlds: each plot with cold caches, held by either node, and shared by all.
pub fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for (name, scripts, faults) in plots().into_iter().chain(plots_of_directories()) {
        for warmth in [Warmth::Cold, Warmth::Held(0), Warmth::Held(1), Warmth::Shared] {
            let label = match warmth {
                Warmth::Cold => "cold".to_owned(),
                Warmth::Held(node) => format!("held{node}"),
                Warmth::Shared => "shared".to_owned(),
            };
            let (scripts, faults) = (scripts.clone(), faults.clone());
            worlds.push(World { name: format!("{name}/{label}"), nodes: 3, scripts, warmth, faults });
        }
    }
    worlds
}

fn plots() -> Vec<Plot> {
    let deaths = || vec![Fault::Master, Fault::Node(0), Fault::Node(1)];
    let all = || [deaths(), vec![Fault::Power]].concat();
    let look = |name| vec![Lookup(D, name), Lookup(D, name)];
    let read = || vec![Lookup(D, "a"), OpenToRead, Read, Read, Close];
    let write = |text| vec![Lookup(D, "a"), OpenToWrite, Write(2, text), Close];
    let append = |text| vec![Lookup(D, "a"), OpenToWrite, Append(text), Close];
    vec![
        (
            "create-create",
            vec![vec![Create(D, "x"), Close], vec![Create(D, "x"), Close], look("x")],
            deaths(),
        ),
        ("create-unlink", vec![vec![Create(D, "x"), Close], vec![Unlink(D, "x")], look("x")], deaths()),
        (
            "rename-create",
            vec![
                vec![Rename(D, "a", D, "x")],
                vec![Create(D, "x"), Close],
                vec![Lookup(D, "x"), Lookup(D, "a")],
            ],
            deaths(),
        ),
        (
            "rename-rename",
            vec![vec![Rename(D, "a", E, "c")], vec![Rename(E, "c", D, "a")], vec![List(D), List(E)]],
            deaths(),
        ),
        ("rename-one-file", vec![vec![Rename(D, "a", E, "x")], vec![Rename(D, "a", D, "y")]], deaths()),
        ("unlink-open", vec![vec![Unlink(D, "a")], read()], deaths()),
        ("move-unlink-open", vec![vec![Rename(D, "a", E, "x"), Unlink(E, "x")], read()], deaths()),
        ("write-read", vec![write("ww"), read()], deaths()),
        ("append-append", vec![append("pp"), append("qq")], deaths()),
        (
            "link-unlink",
            vec![vec![Lookup(D, "a"), Link(E, "l"), Stat], vec![Unlink(D, "a")], vec![List(E), List(D)]],
            deaths(),
        ),
        (
            "links-removed",
            vec![
                vec![Lookup(D, "a"), Link(E, "l"), Lookup(D, "b"), Link(E, "m"), Stat],
                vec![Unlink(D, "a"), Unlink(D, "b"), Unlink(E, "l"), Unlink(E, "m")],
                vec![List(E), Lookup(E, "m"), OpenToRead, Read, Read, Close],
            ],
            deaths(),
        ),
        ("rmdir-create", vec![vec![Rmdir(E, "s")], vec![Create(S, "x"), Close]], deaths()),
        (
            "chmod-stat",
            vec![vec![Lookup(D, "a"), Chmod(0o600), Stat], vec![Lookup(D, "a"), Stat, Stat]],
            deaths(),
        ),
        ("fsync-death", vec![vec![Create(D, "x"), Write(0, "xxxx"), Fsync, Close], look("x")], all()),
        (
            "walk-create",
            vec![vec![List(Root), List(D), List(E)], vec![Create(D, "x"), Close, Create(E, "y"), Close]],
            deaths(),
        ),
        ("truncate-read", vec![vec![Lookup(D, "a"), Truncate(1), Stat], read()], deaths()),
        ("two-look-on", vec![vec![Create(D, "x"), Close], look("x"), look("x")], deaths()),
        (
            "two-read",
            vec![
                vec![Lookup(D, "a"), Chmod(0o600)],
                vec![Lookup(D, "a"), Stat, Stat],
                vec![Lookup(D, "a"), Stat, Stat],
            ],
            deaths(),
        ),
        (
            "read-cut-chmod",
            vec![
                vec![Lookup(D, "a"), OpenToRead, Read, Read, Read, Read, Close],
                vec![Lookup(D, "a"), OpenToWrite, Truncate(1), Write(0, "ww"), Truncate(3), Close],
                vec![Lookup(D, "a"), Truncate(2), Chmod(0o600), Truncate(2)],
            ],
            deaths(),
        ),
        (
            "names-in-order",
            vec![vec![Mkdir(D, "m"), Create(E, "x"), Close, Unlink(D, "b")], vec![List(D), List(E)]],
            all(),
        ),
    ]
}

/// A directory is moved away, and another one gets its name, while that is removed or replaced.
fn plots_of_directories() -> Vec<Plot> {
    let deaths = vec![Fault::Master, Fault::Node(0), Fault::Node(1)];
    let moves = vec![Rename(E, "s", D, "x"), Mkdir(E, "s")];
    let removes = vec![Lookup(E, "s"), Rmdir(E, "s"), Lookup(D, "x")];
    let replaces = vec![Mkdir(E, "t"), Lookup(E, "s"), Rename(E, "t", E, "s"), Lookup(D, "x")];
    vec![
        ("move-rmdir", vec![moves.clone(), removes], deaths.clone()),
        ("move-replace", vec![moves, replaces], deaths),
    ]
}
