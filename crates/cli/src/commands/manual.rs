//! `holdfast man` and `holdfast completions`: manual pages and completions, made from the definitions of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::stdout;

/// Writes the pages into a directory.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    for (name, page) in pages().map_err(Failure::unable)? {
        let path = args.dir.join(name);
        fs::write(&path, page).map_err(|error| Failure::unable(format!("{}: {error}", path.display())))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    stdout().write_all(&completions_of(args.shell)).map_err(Failure::unable)
}

/// Everything that is installed below a prefix: where, and what it is.
pub fn files() -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files: Vec<(PathBuf, Vec<u8>)> =
        pages()?.into_iter().map(|(name, page)| (PathBuf::from("share/man/man1").join(name), page)).collect();
    for (shell, path) in [
        (Shell::Bash, "share/bash-completion/completions/holdfast"),
        (Shell::Zsh, "share/zsh/site-functions/_holdfast"),
        (Shell::Fish, "share/fish/vendor_completions.d/holdfast.fish"),
    ] {
        files.push((path.into(), completions_of(shell)));
    }
    Ok(files)
}

/// A page for the whole, and one for each command: names and text.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let page = clap_mangen::Man::new(command.clone()).manual("Holdfast");
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), text));
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| add_pages(command, pages))
}

fn completions_of(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "holdfast", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_page() {
        let pages = pages().unwrap();
        let page = |name: &str| {
            let (_, text) = pages.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}"));
            String::from_utf8(text.clone()).unwrap()
        };
        assert!(page("holdfast.1").contains("holdfast\\-watch(1)"));
        assert!(page("holdfast-mount.1").contains("token_memory"));
        assert!(page("holdfast-bench-create.1").contains("150000"));
        assert!(pages.iter().all(|(name, _)| !name.contains("worker") && !name.contains("help")));
    }
}
