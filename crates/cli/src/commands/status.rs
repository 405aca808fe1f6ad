//! `holdfast status`: who has the volume mounted, the master, the space.

use std::fmt::Write;

use serde_json::{Value as Json, json};
use volume::{Volume, sources};

use crate::args::StatusArgs;
use crate::backend::{self, ControlError};
use crate::commands::scrub::volume_of;
use crate::commands::{format, mount};
use crate::failure::{Failure, with_causes};
use crate::units::{show_size, show_time};

/// Prints the state of a volume.
pub fn run(args: &StatusArgs) -> Result<(), Failure> {
    let unable = |error: volume::VolumeError| Failure::unable(with_causes(&error));
    let volume = Volume::open(&volume_of(&args.volume)).map_err(unable)?;
    let (mut nodes, mut silent) = (Vec::new(), Vec::new());
    for socket in volume.socket_names().map_err(unable)?.iter().filter(|name| name.starts_with("node-")) {
        match backend::ask(&volume, socket, "status") {
            Ok(answer) => nodes.push(answer),
            Err(ControlError::Connect(error)) if error.is_nobody_listening() => {}
            Err(error) => silent.push(with_causes(&error)),
        }
    }
    let master_pid = volume.master_pid().map_err(unable)?;
    let space = volume.space().map_err(unable)?;
    let nodes = with_members(nodes);
    let problems =
        nodes.iter().filter_map(problem_of).chain(silent.iter().cloned()).chain(left_by_dead(&volume));
    let damage = node::damaged_table(&volume).map(|table| {
        let table = table.display();
        format!(
            "{table}: damaged; other metadata are served, and little can be written: copy what can be read"
        )
    });
    let problems: Vec<String> = problems.chain(damage).collect();
    let document = json!({
        "volume": format::as_json(volume.header(), volume.path()),
        "mounted": !nodes.is_empty() || !silent.is_empty(),
        "epoch": nodes.iter().filter_map(|node| node["epoch"].as_u64()).max(),
        "master": nodes.iter().find(|node| node["role"] == "master").map(|node| &node["node"]),
        "master_pid": master_pid,
        "unflushed_mutations": sum(&nodes, "unflushed_mutations"),
        "unflushed_bytes": sum(&nodes, "unflushed_bytes"),
        "space": {
            "total_bytes": space.total_bytes,
            "free_bytes": space.free_bytes,
            "available_bytes": space.available_bytes,
            "reserve_bytes": space.reserve_bytes,
        },
        "nodes": nodes,
        "problems": problems,
    });
    if args.json {
        println!("{document:#}");
    } else {
        print!("{}", as_text(&document));
    }
    Ok(())
}

fn sum(nodes: &[Json], key: &str) -> u64 {
    nodes.iter().filter_map(|node| node[key].as_u64()).sum()
}

/// Adds the members that a master names and that did not answer themselves, and sorts by node.
fn with_members(mut nodes: Vec<Json>) -> Vec<Json> {
    let mut members: Vec<Json> = Vec::new();
    for node in &mut nodes {
        if let Some(Json::Array(named)) = node.as_object_mut().and_then(|node| node.remove("members")) {
            members.extend(named);
        }
    }
    for member in members {
        if !nodes.iter().any(|node| node["node"] == member["node"]) {
            nodes.push(member);
        }
    }
    nodes.sort_by_key(|node| node["node"].as_u64());
    nodes
}

/// What is wrong with a node, as it says itself or as the master sees it.
fn problem_of(node: &Json) -> Option<String> {
    let problem = match (node["problem"].as_str(), node["membership"].as_str()) {
        (Some(problem), None | Some("member")) => problem.to_owned(),
        (Some(problem), Some(membership)) => format!("{membership}: {problem}"),
        (None, None | Some("member" | "joining" | "left")) => return None,
        (None, Some(membership)) => membership.to_owned(),
    };
    Some(format!("node {} at {}: {problem}", text(&node["node"]), text(&node["mountpoint"])))
}

/// Mounts whose node is dead, as far as they are seen from here.
fn left_by_dead(volume: &Volume) -> Vec<String> {
    let mounts = sources::mounts_of(volume.path()).unwrap_or_default();
    let dead = mounts.iter().map(|mount| &mount.mountpoint).filter(|at| mount::is_dead(at));
    let say = |at: &std::path::PathBuf| {
        format!("{}: its node is dead; `holdfast mount` there replaces it", at.display())
    };
    dead.map(say).collect()
}

fn as_text(document: &Json) -> String {
    let volume = &document["volume"];
    let number = |value: &Json| value.as_u64().unwrap_or(0);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "volume   {}", text(&volume["id"]));
    let _ = writeln!(out, "path     {}", text(&volume["path"]));
    let _ = writeln!(out, "made     {}", show_time(number(&volume["created_unix_seconds"])));
    let space = &document["space"];
    let _ = writeln!(
        out,
        "space    {} available of {}, {} in the reserve",
        show_size(number(&space["available_bytes"])),
        show_size(number(&space["total_bytes"])),
        show_size(number(&space["reserve_bytes"]))
    );
    if document["mounted"] == false {
        let _ = writeln!(out, "mounted  nowhere");
        if !document["master_pid"].is_null() {
            let _ =
                writeln!(out, "master   process {}, without a mount that answers", document["master_pid"]);
        }
        write_problems(&mut out, document);
        return out;
    }
    let _ = writeln!(out, "epoch    {}", text(&document["epoch"]));
    let _ = writeln!(
        out,
        "master   node {} (process {})",
        text(&document["master"]),
        text(&document["master_pid"])
    );
    let _ = writeln!(
        out,
        "\n{:>6}  {:<22}  {:<7}  {:>9}  {:<8}  mount point",
        "node", "host/pid", "role", "unflushed", "requests"
    );
    for node in document["nodes"].as_array().into_iter().flatten() {
        let place = format!("{}/{}", text(&node["host"]), text(&node["pid"]));
        let _ = writeln!(
            out,
            "{:>6}  {place:<22}  {:<7}  {:>9}  {:<8}  {}{}",
            text(&node["node"]),
            text(&node["role"]),
            text(&node["unflushed_mutations"]),
            text(&node["transport"]),
            text(&node["mountpoint"]),
            options_in_words(&node["options"])
        );
    }
    write_problems(&mut out, document);
    out
}

fn write_problems(out: &mut String, document: &Json) {
    for problem in document["problems"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "problem: {}", text(problem));
    }
}

/// Options that are not as by default, as mount(8) lists them.
fn options_in_words(options: &Json) -> String {
    let is_on = |(name, value): (&String, &Json)| (*value == true).then(|| name.clone());
    let names: Vec<String> = options.as_object().into_iter().flatten().filter_map(is_on).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(",")) }
}

/// A value without quotes; `-` for none.
fn text(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_did_not_answer_are_listed_once() {
        let nodes = vec![
            json!({"node": 4, "role": "member", "unflushed_mutations": 7}),
            json!({"node": 3, "role": "master", "members": [{"node": 4, "pid": 1}, {"node": 9, "pid": 2}]}),
        ];
        let nodes = with_members(nodes);
        let ids: Vec<_> = nodes.iter().map(|node| node["node"].as_u64().unwrap_or(0)).collect();
        assert_eq!(ids, [3, 4, 9]);
        assert_eq!(nodes[1]["unflushed_mutations"], 7);
    }

    #[test]
    fn the_text_fits_one_screen_and_names_all() {
        let document = json!({
            "volume": {"id": "abc", "path": "/srv/v", "created_unix_seconds": 0},
            "space": {"available_bytes": 1024, "total_bytes": 2048, "reserve_bytes": 0},
            "mounted": true, "epoch": 3, "master": 1, "master_pid": 77,
            "nodes": [{"node": 1, "host": "h", "pid": 77, "role": "master", "unflushed_mutations": 5, "mountpoint": "/mnt/a",
                "options": {"lazysize": true, "nomtime": false}}],
            "problems": ["node at node-0:9 does not answer"],
        });
        let shown = as_text(&document);
        for part in
            ["abc", "/srv/v", "1.0 KiB available", "epoch    3", "h/77", "/mnt/a (lazysize)", "node-0:9"]
        {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(shown.lines().count() < 24 && shown.lines().all(|line| line.len() <= 80), "{shown}");
    }
}
