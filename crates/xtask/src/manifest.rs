//! Dependencies of a `Cargo.toml`, read line by line; enough for manifests in our own style.

/// When a dependency is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]` or `[build-dependencies]`.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
}

/// Names of all dependencies, as the manifest calls them.
pub fn dependencies(manifest: &str) -> Vec<(Kind, &str)> {
    let mut found = Vec::new();
    let mut section = None;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or("");
            section = kind_of(header);
            // `[dependencies.name]`
            if let (Some(kind), Some(name)) =
                (section, header.rsplit_once("dependencies.").map(|(_, name)| name))
            {
                found.push((kind, name));
                section = None;
            }
            continue;
        }
        let Some(kind) = section else { continue };
        let name = line.split(['=', '.', ' ']).next().unwrap_or("").trim_matches('"');
        if line.contains('=') && !name.is_empty() && !name.starts_with('#') {
            found.push((kind, name));
        }
    }
    found
}

fn kind_of(header: &str) -> Option<Kind> {
    let is = |name: &str| {
        header == name || header.ends_with(&format!(".{name}")) || header.contains(&format!("{name}."))
    };
    match () {
        () if header.starts_with("workspace") => None,
        () if is("dev-dependencies") => Some(Kind::Dev),
        () if is("dependencies") || is("build-dependencies") => Some(Kind::Normal),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, dependencies};

    #[test]
    fn every_spelling_is_read() {
        let manifest = "[package]\nname = \"x\"\nversion.workspace = true\n\n[dependencies]\n# why\n\
            types.workspace = true\nkv = { workspace = true, features = [\"a\"] }\nserde = \"1\"\n\n\
            [dev-dependencies]\ntestkit = { path = \"../testkit\" }\n\n[target.'cfg(unix)'.dependencies]\n\
            rustix = \"1\"\n\n[dependencies.meta]\nworkspace = true\n\n[lints]\nworkspace = true\n";
        assert_eq!(
            dependencies(manifest),
            [
                (Kind::Normal, "types"),
                (Kind::Normal, "kv"),
                (Kind::Normal, "serde"),
                (Kind::Dev, "testkit"),
                (Kind::Normal, "rustix"),
                (Kind::Normal, "meta"),
            ]
        );
    }
}
