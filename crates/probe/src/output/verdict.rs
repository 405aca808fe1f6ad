//! Which layer it is, in one sentence.

use crate::stack::{worst_average, worst_peak};
use crate::units::show_delay;
use crate::watch::Watch;

/// Names the layer that is to blame; None without a stack or before all its layers have figures.
pub(crate) fn verdict(watch: &Watch) -> Option<String> {
    let stack = watch.stack()?;
    if let Some(layer) = stack.lowest_ill(|target| watch.condition(target).is_alarm()) {
        let words: Vec<String> = layer
            .iter()
            .map(|target| format!("{} {}", label(watch, *target), watch.condition(*target).word()))
            .collect();
        return Some(format!(
            "look at {} first: {}; nothing below is ill",
            labels(watch, layer),
            words.join(", ")
        ));
    }
    let added = stack.added(&watch.figures())?;
    let (peak, average) = (worst_peak(&added)?, worst_average(&added)?);
    let peak_text = format!(
        "{} adds most at peak, {}",
        labels(watch, &peak.targets),
        show_delay(peak.peak_added.max(0.0))
    );
    let rest = if peak.targets == average.targets {
        format!(" and on average, {}", show_delay(average.average_added.max(0.0)))
    } else {
        format!(
            "; {} on average, {}",
            labels(watch, &average.targets),
            show_delay(average.average_added.max(0.0))
        )
    };
    Some(peak_text + &rest)
}

/// Labels of targets, by commas.
pub(crate) fn labels(watch: &Watch, targets: &[usize]) -> String {
    let labels: Vec<&str> = targets.iter().map(|target| label(watch, *target)).collect();
    labels.join(",")
}

fn label(watch: &Watch, target: usize) -> &str {
    &watch.targets()[target].label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::watch::tests::{MS, sample_watch};

    #[test]
    fn the_layer_that_adds_the_stall_is_named() {
        let watch = sample_watch();
        let text = verdict(&watch).unwrap();
        assert!(text.starts_with("disk adds most at peak, 1.50 s and on average, 302 ms"), "{text}");
    }

    #[test]
    fn a_hang_is_blamed_on_the_lowest_layer_that_has_it() {
        let mut watch = sample_watch();
        watch.handle_event(&Event::Begin { target: 1, at_ns: 9200 * MS });
        watch.pass(10_300 * MS);
        assert_eq!(verdict(&watch).unwrap(), "look at files first: files pending; nothing below is ill");
        watch.handle_event(&Event::Begin { target: 0, at_ns: 9200 * MS });
        assert_eq!(verdict(&watch).unwrap(), "look at disk first: disk pending; nothing below is ill");
    }
}
