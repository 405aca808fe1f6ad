//! `holdfast dump` and `holdfast load`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use node::{Offline, OfflineError, Purpose};

use crate::args::{DumpArgs, LoadArgs};
use crate::backend::{Attempt, past_election};
use crate::failure::{Failure, with_causes};
use crate::output::stdout;

/// Writes all metadata as text.
pub fn dump(args: &DumpArgs) -> Result<(), Failure> {
    let offline = past_election(|| open(&args.volume, Purpose::Look))?;
    let failed = |error: node::OfflineError| Failure::problem(with_causes(&error));
    let Some(path) = &args.output else {
        offline.dump(&mut BufWriter::new(stdout())).map_err(failed)?;
        return offline.close().map_err(failed);
    };
    let named = |error: io::Error| Failure::unable(format!("{}: {error}", path.display()));
    // For who may read the volume: small files are in it with their content.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut out = BufWriter::new(file.map_err(named)?);
    let dumped = offline.dump(&mut out).map_err(failed).and_then(|count| {
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(named)?;
        Ok(count)
    });
    if dumped.is_err() {
        // Our own, and no dump.
        _ = std::fs::remove_file(path);
    }
    let count = dumped?;
    offline.close().map_err(failed)?;
    println!("{count} records");
    Ok(())
}

/// Reads what `dump` wrote.
pub fn load(args: &LoadArgs) -> Result<(), Failure> {
    let mut input: Box<dyn BufRead> = match &args.input {
        Some(path) => {
            let file = File::open(path);
            Box::new(BufReader::new(
                file.map_err(|error| Failure::unable(format!("{}: {error}", path.display())))?,
            ))
        }
        None => Box::new(BufReader::new(io::stdin())),
    };
    let offline = past_election(|| open(&args.volume, Purpose::Change))?;
    let failed = |error: node::OfflineError| Failure::problem(with_causes(&error));
    let count = offline.load(&mut input).map_err(failed)?;
    offline.close().map_err(failed)?;
    println!("{count} records");
    Ok(())
}

fn open(volume: &Path, purpose: Purpose) -> Result<Attempt<Offline>, Failure> {
    let unable = |error: &OfflineError| Failure::unable(with_causes(error));
    match Offline::open(volume, purpose) {
        Ok(offline) => Ok(Attempt::Done(offline)),
        Err(error @ (OfflineError::Mounted { .. } | OfflineError::MemberLives { .. })) => {
            Ok(Attempt::Early(unable(&error)))
        }
        Err(error) => Err(unable(&error)),
    }
}
