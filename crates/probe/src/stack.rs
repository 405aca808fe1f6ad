//! Layers on one another, and which of them adds the delay.

use thiserror::Error;

use crate::series::Figures;

/// Targets as layers, lowest first; those of one layer stand side by side, as the legs of a mirror do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    layers: Vec<Vec<usize>>,
}

/// What one layer adds to the slowest target of the layer below it. Negative where it is faster, as a cache is.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// The layer's targets.
    pub targets: Vec<usize>,
    /// Largest `davg` of them, and how much that is above the layer below, in seconds.
    pub average: f64,
    /// See [`Self::average`].
    pub average_added: f64,
    /// Largest `emax` of them, and how much that is above the layer below, in seconds.
    pub peak: f64,
    /// See [`Self::peak`].
    pub peak_added: f64,
}

/// Why a stack cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StackError {
    /// A label that no target has.
    #[error("--stack names \"{0}\", which is no target's label")]
    Unknown(String),
    /// A target stands twice.
    #[error("--stack names \"{0}\" twice")]
    Twice(String),
    /// Nothing to compare.
    #[error("--stack needs at least two layers, lowest first, like leg1,leg2:volume:files")]
    TooFew,
}

impl Stack {
    /// Reads `leg1,leg2:volume:files`: layers from the lowest up, targets by their labels.
    ///
    /// # Errors
    ///
    /// All of [`StackError`].
    pub fn parse(text: &str, labels: &[String]) -> Result<Self, StackError> {
        let mut layers: Vec<Vec<usize>> = Vec::new();
        for layer in text.split(':') {
            let mut targets = Vec::new();
            for name in layer.split(',') {
                let found = labels.iter().position(|label| label == name);
                let target = found.ok_or_else(|| StackError::Unknown(name.to_owned()))?;
                if targets.contains(&target) || layers.iter().any(|layer| layer.contains(&target)) {
                    return Err(StackError::Twice(name.to_owned()));
                }
                targets.push(target);
            }
            layers.push(targets);
        }
        if layers.len() < 2 { Err(StackError::TooFew) } else { Ok(Self { layers }) }
    }

    /// Makes one of `count` targets of which is known which stands on which, however far above.
    ///
    /// Targets that stand on none and bear none are left out. None where there is nothing to compare, or more than
    /// one stack.
    pub fn find(count: usize, is_below: impl Fn(usize, usize) -> bool) -> Option<Self> {
        let below = |high: usize| {
            (0..count).filter(move |low| *low != high).filter(|low| is_below(*low, high)).collect()
        };
        let below: Vec<Vec<usize>> = (0..count).map(below).collect();
        let is_in =
            |target: usize| !below[target].is_empty() || below.iter().any(|low| low.contains(&target));
        // A target is one layer above the highest that it stands on: as many rounds as there are targets settle it.
        let mut level = vec![0usize; count];
        for _ in 0..count {
            for high in 0..count {
                level[high] = below[high].iter().map(|low| level[*low] + 1).max().unwrap_or(0).min(count);
            }
        }
        let first = (0..count).find(|target| is_in(*target))?;
        let mut reached = vec![first];
        let mut next = 0;
        while let Some(at) = reached.get(next).copied() {
            next += 1;
            for other in 0..count {
                if !reached.contains(&other) && (below[at].contains(&other) || below[other].contains(&at)) {
                    reached.push(other);
                }
            }
        }
        if (0..count).any(|target| is_in(target) && !reached.contains(&target)) {
            return None;
        }
        reached.sort_unstable();
        let top = reached.iter().map(|target| level[*target]).max()?;
        let layer =
            |at| reached.iter().copied().filter(|target| level[*target] == at).collect::<Vec<usize>>();
        let layers: Vec<Vec<usize>> = (0..=top).map(layer).filter(|layer| !layer.is_empty()).collect();
        (layers.len() > 1).then_some(Self { layers })
    }

    /// The layers, lowest first.
    pub fn layers(&self) -> &[Vec<usize>] {
        &self.layers
    }

    /// What each layer adds; None while a layer has no figures at all.
    pub fn added(&self, figures: &[Figures]) -> Option<Vec<Added>> {
        let mut all: Vec<Added> = Vec::new();
        for targets in &self.layers {
            let largest = |figure: fn(&Figures) -> Option<f64>| {
                let known = targets.iter().filter_map(|target| figure(figures.get(*target)?));
                known.reduce(f64::max)
            };
            let (average, peak) = (largest(|figures| figures.davg)?, largest(|figures| figures.emax)?);
            let (below_average, below_peak) =
                all.last().map_or((0.0, 0.0), |below| (below.average, below.peak));
            all.push(Added {
                targets: targets.clone(),
                average,
                average_added: average - below_average,
                peak,
                peak_added: peak - below_peak,
            });
        }
        Some(all)
    }

    /// The lowest layer in which an I/O is overdue or fails: what stands on it can only wait with it.
    pub fn lowest_ill(&self, is_ill: impl Fn(usize) -> bool) -> Option<&[usize]> {
        self.layers.iter().find(|layer| layer.iter().any(|target| is_ill(*target))).map(Vec::as_slice)
    }
}

/// The layer that adds most at its peak.
pub(crate) fn worst_peak(added: &[Added]) -> Option<&Added> {
    added.iter().reduce(|worst, layer| if layer.peak_added > worst.peak_added { layer } else { worst })
}

/// The layer that adds most on average.
pub(crate) fn worst_average(added: &[Added]) -> Option<&Added> {
    added.iter().reduce(|worst, layer| if layer.average_added > worst.average_added { layer } else { worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> Vec<String> {
        ["leg1", "leg2", "lv", "fs"].map(str::to_owned).to_vec()
    }

    fn figures(davg: f64, emax: f64) -> Figures {
        Figures { davg: Some(davg), emax: Some(emax), ..Figures::default() }
    }

    #[test]
    fn stacks_are_read_by_label() {
        let stack = Stack::parse("leg1,leg2:lv:fs", &labels()).unwrap();
        assert_eq!(stack.layers(), [vec![0, 1], vec![2], vec![3]]);
        for (text, error) in [
            ("leg1:vg", StackError::Unknown("vg".to_owned())),
            ("leg1:", StackError::Unknown(String::new())),
            ("leg1:lv:leg1", StackError::Twice("leg1".to_owned())),
            ("leg1,leg1:lv", StackError::Twice("leg1".to_owned())),
            ("leg1,leg2", StackError::TooFew),
        ] {
            assert_eq!(Stack::parse(text, &labels()), Err(error), "{text}");
        }
    }

    #[test]
    fn stacks_are_found_from_what_stands_on_what() {
        let find = |count, pairs: &[(usize, usize)]| {
            Stack::find(count, |low, high| pairs.contains(&(low, high))).map(|stack| stack.layers)
        };
        // Legs 0 and 1, a volume 2 on them, files 3 on it; the kernel tells what is further below too.
        let mirror = [(0, 2), (1, 2), (2, 3), (0, 3), (1, 3)];
        assert_eq!(find(4, &mirror), Some(vec![vec![0, 1], vec![2], vec![3]]));
        assert_eq!(find(5, &mirror), Some(vec![vec![0, 1], vec![2], vec![3]]), "4 has nothing to do with it");
        assert_eq!(find(3, &[(2, 1), (1, 0), (2, 0)]), Some(vec![vec![2], vec![1], vec![0]]));
        assert_eq!(find(2, &[]), None);
        assert_eq!(find(4, &[(0, 1), (2, 3)]), None, "two stacks");
        // Two names of one device, as a loop of its own file would be: no end of it, and no panic.
        assert!(find(2, &[(0, 1), (1, 0)]).is_none_or(|layers| layers.len() <= 2));
    }

    #[test]
    fn a_slow_volume_over_fast_legs_is_blamed_and_the_file_system_is_not() {
        // The case that this tool is for: legs of a mirror below 1.5 ms and 96 ms, the volume 56 ms and 1.5 s.
        let stack = Stack::parse("leg1,leg2:lv:fs", &labels()).unwrap();
        let all = [figures(0.0012, 0.012), figures(0.0015, 0.096), figures(0.056, 1.5), figures(0.054, 1.5)];
        let added = stack.added(&all).unwrap();
        assert_eq!(worst_peak(&added).unwrap().targets, [2]);
        assert_eq!(worst_average(&added).unwrap().targets, [2]);
        assert!((added[1].peak_added - 1.404).abs() < 1e-9 && (added[1].average_added - 0.0545).abs() < 1e-9);
        assert!((added[2].average_added + 0.002).abs() < 1e-9 && added[2].peak_added == 0.0);
    }

    #[test]
    fn without_figures_of_a_layer_nothing_is_said() {
        let stack = Stack::parse("leg1:lv", &labels()).unwrap();
        let none = Figures::default;
        assert_eq!(stack.added(&[figures(1.0, 1.0), none(), none(), none()]), None);
    }

    #[test]
    fn the_lowest_ill_layer_is_found() {
        let stack = Stack::parse("leg1,leg2:lv:fs", &labels()).unwrap();
        assert_eq!(stack.lowest_ill(|target| target >= 2), Some(&[2][..]));
        assert_eq!(stack.lowest_ill(|target| target == 1 || target == 3), Some(&[0, 1][..]));
        assert_eq!(stack.lowest_ill(|_| false), None);
    }
}
