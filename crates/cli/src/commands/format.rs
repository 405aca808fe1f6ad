//! `holdfast format`.

use serde_json::json;
use volume::{FormatOptions, Header};

use crate::args::FormatArgs;
use crate::failure::{Failure, with_causes};
use crate::units::show_size;

/// Makes a volume and prints its id and options.
pub fn run(args: &FormatArgs) -> Result<(), Failure> {
    let inline_bytes = u32::try_from(args.inline_size).unwrap_or(u32::MAX);
    let options = FormatOptions { segment_bytes: args.segment_size, inline_bytes, reserve_bytes: None };
    let header =
        volume::format(&args.dir, &options).map_err(|error| Failure::problem(with_causes(&error)))?;
    let path = std::fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
    if args.json {
        println!("{:#}", as_json(&header, &path));
        return Ok(());
    }
    println!("volume   {}", header.id);
    println!("path     {}", path.display());
    println!("segment  {}", show_size(header.segment_bytes));
    println!("inline   {}", show_size(header.inline_bytes.into()));
    println!("reserve  {}", show_size(header.reserve_bytes));
    Ok(())
}

/// What `--json` of `format` and `status` says of a volume.
pub fn as_json(header: &Header, path: &std::path::Path) -> serde_json::Value {
    json!({
        "path": path.to_string_lossy(),
        "id": header.id.to_string(),
        "format_version": volume::FORMAT_VERSION,
        "created_unix_seconds": header.created_secs,
        "segment_bytes": header.segment_bytes,
        "inline_bytes": header.inline_bytes,
        "reserve_bytes": header.reserve_bytes,
    })
}
