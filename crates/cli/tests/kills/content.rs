//! Bytes that say whose they are: cells of 16 bytes, each with file, version and its own place.

/// All of a file.
pub fn content(file: u64, version: u64, len: usize) -> Vec<u8> {
    let cell = |place: usize| {
        let mut cell = [0; CELL];
        cell[..8].copy_from_slice(&file.to_le_bytes());
        cell[8..12].copy_from_slice(&(version as u32).to_le_bytes());
        cell[12..].copy_from_slice(&(place as u32 + 1).to_le_bytes());
        cell
    };
    (0..len / CELL).flat_map(cell).collect()
}

/// What a file consists of: the least and the greatest version of its cells, 0 for holes.
///
/// # Errors
///
/// Bytes that nobody wrote there.
pub fn versions(file: u64, bytes: &[u8]) -> Result<(u64, u64), String> {
    let (cells, rest) = bytes.as_chunks::<CELL>();
    if !rest.is_empty() {
        return Err(format!("{} bytes, not whole cells", bytes.len()));
    }
    let (mut least, mut greatest) = (u64::MAX, 0);
    for (place, cell) in cells.iter().enumerate() {
        let read = |cell: &[u8; CELL]| -> Option<u64> {
            if *cell == [0; CELL] {
                return Some(0);
            }
            let owner = u64::from_le_bytes(cell[..8].try_into().ok()?);
            let version = u32::from_le_bytes(cell[8..12].try_into().ok()?);
            let at = u32::from_le_bytes(cell[12..].try_into().ok()?);
            (owner == file && at as usize == place + 1).then_some(u64::from(version))
        };
        let version = read(cell).ok_or_else(|| format!("cell {place} is {cell:02x?}, not of file {file}"))?;
        (least, greatest) = (least.min(version), greatest.max(version));
    }
    Ok((least.min(greatest), greatest))
}

/// Whose a file is by its first cell that is no hole.
pub fn owner(bytes: &[u8]) -> Option<u64> {
    let (cells, _) = bytes.as_chunks::<CELL>();
    let cell = cells.iter().find(|cell| **cell != [0; CELL])?;
    Some(u64::from_le_bytes(cell[..8].try_into().ok()?))
}

/// A record of a file that all append to.
pub fn record(writer: u64, number: u64) -> [u8; RECORD] {
    let mut record = [b'.'; RECORD];
    let text = format!("{writer} {number} ");
    record[..text.len()].copy_from_slice(text.as_bytes());
    record[RECORD - 1] = b'\n';
    record
}

/// Writers and numbers in their order.
///
/// # Errors
///
/// Bytes that are no whole record.
pub fn records(bytes: &[u8]) -> Result<Vec<(u64, u64)>, String> {
    let (whole, rest) = bytes.as_chunks::<RECORD>();
    if !rest.is_empty() {
        return Err(format!("{} bytes behind the last whole record", rest.len()));
    }
    let read = |(at, bytes): (usize, &[u8; RECORD])| -> Result<(u64, u64), (usize, String)> {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.split(' ').map(|word| word.parse::<u64>().ok());
        match (words.next().flatten(), words.next().flatten()) {
            (Some(writer), Some(number)) if record(writer, number) == *bytes => Ok((writer, number)),
            _ => Err((at, text.into_owned())),
        }
    };
    let all: Vec<_> = whole.iter().enumerate().map(read).collect();
    match all.iter().position(Result::is_err) {
        None => Ok(all.into_iter().flatten().collect()),
        Some(first) => {
            let bad: Vec<usize> = all.iter().filter_map(|r| r.as_ref().err()).map(|(at, _)| *at).collect();
            let around = &all[first.saturating_sub(3)..(first + 4).min(all.len())];
            Err(format!(
                "{} of {} records are none, {bad:?}; around the first: {around:?}",
                bad.len(),
                all.len()
            ))
        }
    }
}

const CELL: usize = 16;
const RECORD: usize = 48;
