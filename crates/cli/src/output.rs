//! Standard output, where whoever reads it may have seen enough (`holdfast dump ./vol | head`).

use std::io::{self, Write};

/// Standard output, for much at once. When nobody reads it any more the command [ends](end).
pub fn stdout() -> impl Write {
    Stdout(io::stdout().lock())
}

/// Ends as a command that SIGPIPE kills.
pub fn end() -> ! {
    std::process::exit(SIGPIPE_CODE)
}

struct Stdout(io::StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(end_or)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(end_or)
    }
}

fn end_or(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => end(),
        _ => error,
    }
}

/// 128 and the signal, as shells have it.
const SIGPIPE_CODE: i32 = 141;
