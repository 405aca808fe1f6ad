//! Privileges of files that go with a change, and files replaced while the other node has them open.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::process::Uid;
use serde_json::{Value as Json, json};

use crate::lab::{Lab, Mount, Partner, as_user, unless_busy};

/// A capability as the kernel stores it: revision 2, effective, permitted CAP_NET_RAW.
const NET_RAW: &str = "0100000200200000000000000000000000000000";
const CAPABILITY: &str = "security.capability";
const NOBODY: u32 = 65_534;

/// A way to change a file.
type Change = (&'static str, &'static str, &'static [i64]);

#[test]
fn setuid_setgid_and_capabilities_go_when_nobody_changes_a_file() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut root = Partner::start(&a.root);
    let [mut nobody, mut other] = [&a, &b].map(|mount: &Mount| Partner::start_as_nobody(&mount.root));
    let changes: [Change; 4] = [
        ("written", "append", &[]),
        ("overwritten", "overwrite", &[0]),
        ("cut", "truncate", &[1]),
        ("given", "chown", &[-1, NOBODY as i64]),
    ];
    for (name, order, numbers) in changes {
        root.must("create", &[json!(name), json!("content")]);
        root.must("chown", &[json!(name), json!(NOBODY), json!(NOBODY)]);
        root.must("set_xattr", &[json!(name), json!(CAPABILITY), json!(NET_RAW)]);
        root.must("chmod", &[json!(name), json!(0o6777)]);
        // Both nodes have seen it with its privileges.
        for partner in [&mut nobody, &mut other] {
            assert_eq!(partner.must("stat", &[json!(name)])["mode"], json!(0o6777), "{name}");
            assert_eq!(partner.must("xattr", &[json!(name), json!(CAPABILITY)]), json!(NET_RAW));
        }
        let mut arguments = vec![json!(name)];
        arguments.extend(numbers.iter().map(|number| json!(number)));
        if matches!(order, "append" | "overwrite") {
            arguments.push(json!("more"));
        }
        nobody.must(order, &arguments);
        for partner in [&mut root, &mut nobody, &mut other] {
            assert_eq!(partner.must("stat", &[json!(name)])["mode"], json!(0o777), "{name}");
            let capability = partner.ask("xattr", &[json!(name), json!(CAPABILITY)]);
            assert_eq!(capability, Err("ENODATA".to_owned()), "{name}");
        }
    }
    // From the other node, on what this one holds.
    root.must("create", &[json!("held"), json!("content"), json!(0o600)]);
    root.must("chmod", &[json!("held"), json!(0o6777)]);
    other.must("append", &[json!("held"), json!("more")]);
    assert_eq!(root.must("stat", &[json!("held")])["mode"], json!(0o777));
    drop((root, nobody, other));
    a.unmount(&lab);
    b.unmount(&lab);
    let again = lab.mount("a");
    let mut nobody = Partner::start_as_nobody(&again.root);
    for (name, ..) in changes {
        assert_eq!(nobody.must("stat", &[json!(name)])["mode"], json!(0o777), "{name}");
    }
}

/// Runs a program that says who it is.
fn run_as_nobody(path: &Path) -> Output {
    unless_busy(|| Command::new(path).arg("-u").uid(NOBODY).gid(NOBODY).output()).expect("ran")
}

/// Goal: whoever is not the owner and changes a program leaves nothing that runs with the owner's rights, whether the kernel was told of
/// these just now or long ago, and whether the change is made here or by the master. Method: the program says whose rights it has; what is changed lies behind its end.
/// Where it was made on another node, and has a second name, its mode is the master's to change.
#[test]
fn a_program_that_nobody_changed_does_not_run_as_its_owner() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let program = fs::read("/usr/bin/id").expect("of every Debian");
    let end = program.len() as u64;
    let changes: [(&str, &(dyn Fn(&File, &File) + Sync)); 4] = [
        ("written", &|_, to| to.write_all_at(b"other", end).expect("written")),
        ("cut", &|_, to| to.set_len(end).expect("cut")),
        ("copied", &|from, to| {
            let copied = rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut end.clone()), 100_000);
            assert_eq!(copied.expect("copied"), 100_000);
        }),
        ("punched", &|_, to| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(to, flags, end, 50_000).expect("punched");
        }),
    ];
    fs::write(a.path("source"), vec![7; 100_000]).expect("made");
    for (name, change) in changes {
        for (age, mount) in [(0, &a), (1200, &a), (0, &b), (1200, &b)] {
            let name = format!("{name}-{age}-{}", if mount.root == a.root { "here" } else { "there" });
            let (made, path) = (a.path(&name), mount.path(&name));
            fs::write(&made, [&program[..], &[1; 100_000]].concat()).expect("made");
            fs::set_permissions(&made, fs::Permissions::from_mode(0o6777)).expect("set");
            if mount.root != a.root {
                fs::hard_link(&made, a.path(&format!("{name}-linked"))).expect("linked");
            }
            let runs_as = || {
                let ran = run_as_nobody(&path);
                assert!(ran.status.success(), "{}: {ran:?}", path.display());
                String::from_utf8(ran.stdout).expect("a number").trim().parse::<u32>().expect("a number")
            };
            assert_eq!(runs_as(), 0);
            std::thread::sleep(Duration::from_millis(age));
            as_user(NOBODY, || {
                let from = File::open(mount.path("source")).expect("opened");
                change(&from, &File::options().write(true).open(&path).expect("opened"));
            });
            assert_eq!(runs_as(), NOBODY, "{}", path.display());
        }
    }
}

#[test]
fn a_copy_of_nothing_leaves_setuid_alone() {
    let Some(lab) = Lab::new() else { return };
    let a = lab.mount("a");
    let (source, path) = (a.path("source"), a.path("target"));
    fs::write(&source, vec![7; 100_000]).expect("made");
    fs::write(&path, vec![1; 100_000]).expect("made");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("set");
    let (from, to) = (File::open(&source).expect("opened"), File::options().write(true).open(&path));
    let to = to.expect("opened");
    from.sync_all().expect("stored");
    as_user(NOBODY, || {
        let copied = rustix::fs::copy_file_range(&from, Some(&mut 100_000), &to, Some(&mut 0), 4096);
        assert_eq!(copied.expect("nothing there"), 0);
    });
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o6777);
}

/// As on other file systems: it is no privilege, but stays with those alone who could have set it.
#[test]
fn setgid_without_group_execution_stays_with_members_of_the_group() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut root = Partner::start(&a.root);
    let mut nobody = Partner::start_as_nobody(&b.root);
    let changes: [Change; 4] = [
        ("written", "append", &[]),
        ("overwritten", "overwrite", &[0]),
        ("cut", "truncate", &[1]),
        ("roomy", "allocate", &[9000]),
    ];
    for (group, mode) in [(0, 0o767), (NOBODY, 0o2767)] {
        for (name, order, numbers) in changes {
            root.must("create", &[json!(name), json!("content")]);
            root.must("chown", &[json!(name), json!(0), json!(group)]);
            root.must("chmod", &[json!(name), json!(0o6767)]);
            let mut arguments = vec![json!(name)];
            arguments.extend(numbers.iter().map(|number| json!(number)));
            if matches!(order, "append" | "overwrite") {
                arguments.push(json!("more"));
            }
            nobody.must(order, &arguments);
            for partner in [&mut root, &mut nobody] {
                assert_eq!(partner.must("stat", &[json!(name)])["mode"], json!(mode), "{name} of {group}");
            }
            root.must("unlink", &[json!(name)]);
        }
    }
    // Root may give what nobody could have set.
    root.must("create", &[json!("given"), json!("content")]);
    root.must("chmod", &[json!("given"), json!(0o6767)]);
    root.must("chown", &[json!("given"), json!(0), json!(NOBODY)]);
    assert_eq!(nobody.must("stat", &[json!("given")])["mode"], json!(0o2767));
    // One of several groups.
    root.must("create", &[json!("f"), json!("content")]);
    root.must("chown", &[json!("f"), json!(0), json!(7)]);
    for (groups, mode) in [("--groups 5,7,9", 0o2767), ("--clear-groups", 0o767)] {
        root.must("chmod", &[json!("f"), json!(0o2767)]);
        let script = format!("setpriv --reuid 1000 --regid 1000 {groups} sh -c 'echo more >> b/f'");
        lab.sh(&script).expect_success();
        assert_eq!(root.must("stat", &[json!("f")])["mode"], json!(mode), "{groups}");
    }
}

#[test]
fn root_keeps_setuid_and_loses_the_capability() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    on_a.must("create", &[json!("f"), json!("content")]);
    on_a.must("chmod", &[json!("f"), json!(0o6755)]);
    on_a.must("set_xattr", &[json!("f"), json!(CAPABILITY), json!(NET_RAW)]);
    let changes = [
        ("append", json!("more")),
        ("truncate", json!(3)),
        ("allocate", json!(9000)),
        ("append", json!("again")),
    ];
    for (order, argument) in changes {
        on_b.must(order, &[json!("f"), argument]);
        assert_eq!(on_a.must("stat", &[json!("f")])["mode"], json!(0o6755), "{order}");
        assert_eq!(on_a.ask("xattr", &[json!("f"), json!(CAPABILITY)]), Err("ENODATA".to_owned()), "{order}");
        on_a.must("set_xattr", &[json!("f"), json!(CAPABILITY), json!(NET_RAW)]);
    }
    on_b.must("chown", &[json!("f"), json!(NOBODY), json!(-1)]);
    assert_eq!(on_a.must("stat", &[json!("f")])["mode"], json!(0o755));
}

#[test]
fn permissions_and_owners_hold_on_both_nodes() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut root = Partner::start(&a.root);
    let mut nobody = Partner::start_as_nobody(&b.root);
    root.must("create", &[json!("secret"), json!("s"), json!(0o600)]);
    assert_eq!(nobody.ask("read", &[json!("secret")]), Err("EACCES".to_owned()));
    assert_eq!(nobody.ask("unlink", &[json!("secret")]), Err("EACCES".to_owned()));
    assert_eq!(nobody.ask("chmod", &[json!("secret"), json!(0o666)]), Err("EPERM".to_owned()));
    root.must("chmod", &[json!("secret"), json!(0o644)]);
    assert_eq!(nobody.must("read", &[json!("secret")]), json!("s"));
    root.must("chmod", &[json!("secret"), json!(0o600)]);
    assert_eq!(nobody.ask("read", &[json!("secret")]), Err("EACCES".to_owned()));
    root.must("chown", &[json!("secret"), json!(NOBODY), json!(NOBODY)]);
    assert_eq!(nobody.must("read", &[json!("secret")]), json!("s"));
}

/// Goal: who has given a file away, on whatever node, does to it what his capabilities allow and no more: CAP_CHOWN gives it to others, CAP_FOWNER sets its mode.
/// Method: a user has it open while root of another node takes it.
#[test]
fn a_file_that_another_node_took_is_changed_by_who_may() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let mut root = Partner::start(&a.root);
    root.must("chmod", &[json!("."), json!(0o777)]);
    let refused = || Err("EPERM".to_owned());
    for (n, capability) in [None, Some("chown"), Some("fowner")].into_iter().enumerate() {
        let options =
            capability.map(|name| [format!("--inh-caps=+{name}"), format!("--ambient-caps=+{name}")]);
        let options: Vec<&str> = options.iter().flatten().map(String::as_str).collect();
        let mut user = Partner::start_as_nobody_with(&options, &b.root);
        let file = format!("f{n}");
        user.must("create", &[json!(file), json!("content"), json!(0o644)]);
        let fd = user.must("open", &[json!(file), json!("r")]);
        root.must("chown", &[json!(file), json!(0), json!(0)]);
        let is = |name: &str| capability == Some(name);
        let set = user.ask("chmod", &[fd.clone(), json!(0o4755)]);
        assert_eq!(set, if is("fowner") { Ok(Json::Null) } else { refused() }, "{capability:?}");
        let given = user.ask("chown", &[fd, json!(NOBODY), json!(NOBODY)]);
        assert_eq!(given, if is("chown") { Ok(Json::Null) } else { refused() }, "{capability:?}");
    }
}

#[test]
fn a_file_replaced_elsewhere_is_whole_until_its_last_close() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.mount("a"), lab.mount("b"));
    let [mut on_a, mut on_b] = [Partner::start(&a.root), Partner::start(&b.root)];
    for (round, size) in [100, 5_000, 300_000].into_iter().enumerate() {
        let (old, new) = ("old ".repeat(size / 4), format!("new {round}"));
        on_a.must("create", &[json!("f"), json!(old)]);
        let reading = on_b.must("open", &[json!("f"), json!("r")]);
        let writing = on_b.must("open", &[json!("f"), json!("rw")]);
        on_a.must("create", &[json!("g"), json!(new)]);
        on_a.must("rename", &[json!("g"), json!("f")]);
        assert_eq!(on_b.must("read", &[json!("f")]), json!(new));
        assert_eq!(on_b.must("fstat", &[reading.clone()]), json!({ "size": size, "nlink": 0 }));
        assert_eq!(on_b.must("pread", &[reading.clone(), json!(8), json!(size - 8)]), json!("old old "));
        on_b.must("pwrite", &[writing.clone(), json!("written after"), json!(size)]);
        on_b.must("close", &[writing]);
        let after: Json = on_b.must("pread", &[reading.clone(), json!(100), json!(size)]);
        assert_eq!(after, json!("written after"));
        on_b.must("close", &[reading]);
        assert_eq!(on_a.must("read", &[json!("f")]), json!(new));
        on_a.must("unlink", &[json!("f")]);
    }
    drop((on_a, on_b));
    // Nothing is left of what was replaced.
    b.unmount(&lab);
    a.unmount(&lab);
    let again = lab.mount("a");
    assert_eq!(fs::read_dir(&again.root).expect("listed").count(), 0);
}

/// Goal: a write that has to take a privilege away first waits for nobody who waits for its pages. Method: root and an
/// ordinary user write parts of pages of one file on both nodes, which others read, give a capability and attributes that do
/// not fit into the record; everybody gets on, and nothing fails.
#[test]
fn writes_go_on_while_privileges_come_and_go() {
    let Some(lab) = Lab::new() else { return };
    let mounts = [lab.mount("a"), lab.mount("b")];
    let name = "contended";
    fs::write(mounts[0].path(name), vec![b'x'; LEN]).expect("made");
    fs::set_permissions(mounts[0].path(name), fs::Permissions::from_mode(0o666)).expect("set");
    let until = Instant::now() + Duration::from_secs(4);
    let capability = (0..NET_RAW.len()).step_by(2).map(|at| u8::from_str_radix(&NET_RAW[at..at + 2], 16));
    let capability: Vec<u8> = capability.collect::<Result<_, _>>().expect("a number in hexadecimal");
    let capability = &capability;
    let counts: Vec<(String, u64)> = std::thread::scope(|scope| {
        let workers = mounts.iter().flat_map(|mount| {
            let path = mount.path(name);
            ROLES.map(|role| (path.clone(), role, format!("{role:?} at {}", mount.root.display())))
        });
        let started: Vec<_> = workers
            .map(|(path, role, who)| (who, scope.spawn(move || contend(&path, role, capability, until))))
            .collect();
        started.into_iter().map(|(who, thread)| (who, thread.join().expect("it gets on"))).collect()
    });
    println!("{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count >= 3), "{counts:?}");
    for mount in mounts {
        mount.unmount(&lab);
    }
}

const LEN: usize = 20_000;

#[derive(Clone, Copy, Debug)]
enum Role {
    Writer,
    OrdinaryWriter,
    Reader,
    Giver,
    Tagger,
}

const ROLES: [Role; 5] = [Role::Writer, Role::OrdinaryWriter, Role::Reader, Role::Giver, Role::Tagger];

/// Does the same to a file again and again; returns how often.
fn contend(path: &Path, role: Role, capability: &[u8], until: Instant) -> u64 {
    let file = File::options().read(true).write(true).open(path).expect("opened");
    if let Role::OrdinaryWriter = role {
        let nobody = Uid::from_raw(NOBODY);
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
    }
    let mut count = 0;
    while Instant::now() < until {
        let began = Instant::now();
        let at = count * 37 % (LEN as u64 - 5000);
        match role {
            Role::Writer | Role::OrdinaryWriter => file.write_all_at(b"0123456789", at).expect("written"),
            Role::Reader => file.read_exact_at(&mut [0; 5000], at).expect("read"),
            Role::Giver => set_xattr(path, CAPABILITY, capability),
            Role::Tagger => set_xattr(path, "user.large", &[count as u8; 3000]),
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{role:?}: {:?}", began.elapsed());
        count += 1;
        if let Role::Giver | Role::Tagger = role {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    count
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).expect("set");
}
