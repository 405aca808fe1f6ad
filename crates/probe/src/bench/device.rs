//! Devices that a benchmark reads, or destroys where that was asked for by name.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::BenchError;
use crate::beneath::Place;

/// A block device, open for as long as it is measured.
#[derive(Debug)]
pub(crate) struct Device {
    pub path: PathBuf,
    pub len: u64,
    /// Keeps everybody else from mounting or claiming it, where it is written.
    _claim: File,
}

impl Device {
    /// To be read only.
    pub fn to_read(path: &Path) -> Result<Self, BenchError> {
        check_block(path)?;
        let file = File::open(path).map_err(|error| failed(path, "cannot be opened to read", error))?;
        Self::of(path, file)
    }

    /// To be written over: refused where anybody may miss what it holds.
    pub fn to_destroy(path: &Path) -> Result<Self, BenchError> {
        check_block(path)?;
        let file = File::options().read(true).write(true).custom_flags(O_EXCL).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                unfit(path, "it is mounted or held by somebody: nothing is written to it".to_owned())
            }
            _ => failed(path, "cannot be opened to write", error),
        })?;
        if let Some(holder) = holder(path) {
            return Err(unfit(path, format!("{holder} stands on it: nothing is written to it")));
        }
        let signatures = signatures(path)?;
        if !signatures.is_empty() {
            let list = signatures.join(", ");
            return Err(unfit(path, format!("it carries {list} (see wipefs(8)): nothing is written to it")));
        }
        Self::of(path, file)
    }

    fn of(path: &Path, mut file: File) -> Result<Self, BenchError> {
        let len = file.seek(SeekFrom::End(0)).map_err(|error| failed(path, "has no length", error))?;
        Ok(Self { path: path.to_owned(), len, _claim: file })
    }

    /// The lowest device beneath `dir` that may be read.
    pub fn beneath(dir: &Path) -> Option<Self> {
        let names = Place::of(dir).beneath;
        let devices = names.iter().rev().filter_map(|name| device_path(name.strip_prefix("block ")?));
        devices.filter_map(|path| Self::to_read(&path).ok()).find(|device| device.len > 0)
    }
}

fn check_block(path: &Path) -> Result<(), BenchError> {
    let found = fs::metadata(path).map_err(|error| failed(path, "cannot be used", error))?;
    match found.file_type().is_block_device() {
        true => Ok(()),
        false => Err(unfit(path, "is no block device".to_owned())),
    }
}

/// `/dev/sda` of `8:0`.
pub(crate) fn device_path(numbers: &str) -> Option<PathBuf> {
    let told = fs::read_to_string(format!("/sys/dev/block/{numbers}/uevent")).ok()?;
    let name = told.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

/// Devices of a mapper, RAID or loop that stand on it, which need not hold it open for themselves alone.
fn holder(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.rdev();
    let numbers = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let holders = fs::read_dir(format!("/sys/dev/block/{numbers}/holders")).into_iter().flatten().flatten();
    if let Some(holder) = holders.into_iter().next() {
        return Some(holder.file_name().to_string_lossy().into_owned());
    }
    let own = format!("block {numbers}");
    let devices = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    devices.into_iter().find_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let name = device.file_name().to_string_lossy().into_owned();
        (Place::of(Path::new(file.trim_end_matches('\n'))).own.as_ref() == Some(&own)).then_some(name)
    })
}

/// File systems, partition tables, members of RAID and volume groups, swap: what libblkid knows.
fn signatures(path: &Path) -> Result<Vec<String>, BenchError> {
    let output = Command::new("wipefs")
        .args(["--no-act", "--noheadings", "--output", "TYPE"])
        .arg(path)
        .output()
        .map_err(|error| failed(path, "wipefs(8), which tells what it carries, cannot be run", error))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(unfit(path, format!("what it carries cannot be told: {error}")));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> BenchError {
    BenchError::Place { path: path.to_owned(), what, source }
}

fn unfit(path: &Path, what: String) -> BenchError {
    BenchError::Unfit { path: path.to_owned(), what }
}

/// Of a block device: for us alone.
const O_EXCL: i32 = 0o200;
