//! A run by its choices: what happened, in order, as text that can be run again.

use std::fmt;
use std::str::FromStr;

use crate::cluster::{Cut, Move};

/// One choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A process goes on with its next operation.
    Process(usize),
    /// Something happens in the cluster.
    Cluster(Move),
}

/// Choices in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(pub Vec<Event>);

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(f, "p{process}"),
            Self::Cluster(next) => match next {
                Move::ToMaster(node) => write!(f, "up{node}"),
                Move::FromMaster(node) => write!(f, "down{node}"),
                Move::Invalidate(node, job) => write!(f, "kernel{node}.{job}"),
                Move::NodeSync(node) => write!(f, "store{node}"),
                Move::MasterSync => write!(f, "sync"),
                Move::Time => write!(f, "time"),
                Move::KillMaster => write!(f, "die"),
                Move::KillNode(node) => write!(f, "kill{node}"),
                Move::LosePower(seed) => write!(f, "power{seed}"),
                Move::Break(node, arrive) => write!(f, "break{node}.{arrive}"),
                Move::Pause(node) => write!(f, "pause{node}"),
                Move::Cut(node, Cut::Both) => write!(f, "cut{node}"),
                Move::Cut(node, Cut::ToMaster) => write!(f, "mute{node}"),
                Move::Cut(node, Cut::FromMaster) => write!(f, "deaf{node}"),
            },
        }
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let split = word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len());
        let (kind, digits) = word.split_at(split);
        let wrong = || format!("{word} is no event");
        let number = || digits.parse().map_err(|_| wrong());
        Ok(match kind {
            "p" => Self::Process(number()?),
            "up" => Self::Cluster(Move::ToMaster(number()?)),
            "down" => Self::Cluster(Move::FromMaster(number()?)),
            "kernel" => {
                let (node, job) = digits.split_once('.').ok_or_else(wrong)?;
                let node = node.parse().map_err(|_| wrong())?;
                Self::Cluster(Move::Invalidate(node, job.parse().map_err(|_| wrong())?))
            }
            "break" => {
                let (node, arrive) = digits.split_once('.').ok_or_else(wrong)?;
                let node = node.parse().map_err(|_| wrong())?;
                Self::Cluster(Move::Break(node, arrive.parse().map_err(|_| wrong())?))
            }
            "pause" => Self::Cluster(Move::Pause(number()?)),
            "cut" => Self::Cluster(Move::Cut(number()?, Cut::Both)),
            "mute" => Self::Cluster(Move::Cut(number()?, Cut::ToMaster)),
            "deaf" => Self::Cluster(Move::Cut(number()?, Cut::FromMaster)),
            "store" => Self::Cluster(Move::NodeSync(number()?)),
            "sync" => Self::Cluster(Move::MasterSync),
            "time" => Self::Cluster(Move::Time),
            "die" => Self::Cluster(Move::KillMaster),
            "kill" => Self::Cluster(Move::KillNode(number()?)),
            "power" => Self::Cluster(Move::LosePower(digits.parse().map_err(|_| wrong())?)),
            _ => return Err(wrong()),
        })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, event) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{event}")?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_whitespace().map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}
