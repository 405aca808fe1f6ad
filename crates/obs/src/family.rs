//! Metrics with labels: one cell per combination, all made at construction.

use std::marker::PhantomData;

use crate::labels::{LabelSet, Tables};
use crate::metric::{Measure, Single};
use crate::snapshot::Cell;

/// One `M` per value of the label set `L`.
#[derive(Debug)]
pub struct Family<M, L> {
    cells: Box<[M]>,
    dimensions: Vec<(&'static str, Vec<&'static str>)>,
    label: PhantomData<fn(L)>,
}

impl<M, L: LabelSet> Family<M, L> {
    /// The cell of `label`. A label past the end of its table means the last cell, `other`.
    pub fn at(&self, label: L) -> &M {
        &self.cells[label.index().min(self.cells.len() - 1)]
    }
}

impl<L: LabelSet> Family<crate::Counter, L> {
    /// Adds `n` to the cell of `label`.
    pub fn add(&self, label: L, n: u64) {
        self.at(label).add(n);
    }

    /// The sum over all labels.
    pub fn sum(&self) -> u64 {
        self.cells.iter().map(crate::Counter::get).sum()
    }
}

impl<L: LabelSet> Family<crate::Gauge, L> {
    /// Adds `n`, which may be negative, to the cell of `label`.
    pub fn add(&self, label: L, n: i64) {
        self.at(label).add(n);
    }

    /// Sets the cell of `label`.
    pub fn set(&self, label: L, value: i64) {
        self.at(label).set(value);
    }

    /// The sum over all labels.
    pub fn sum(&self) -> i64 {
        self.cells.iter().map(crate::Gauge::get).sum()
    }
}

impl<L: LabelSet> Family<crate::Histogram, L> {
    /// Records one duration in the cell of `label`.
    pub fn record(&self, label: L, us: u64) {
        self.at(label).record(us);
    }
}

impl<M: Single + Default, L: LabelSet> Measure for Family<M, L> {
    fn create(tables: &Tables) -> Self {
        let dimensions = L::dimensions(tables);
        let count: usize = dimensions.iter().map(|(_, values)| values.len()).product();
        assert!(count > 0, "a label set has at least one value");
        Self { cells: (0..count).map(|_| M::default()).collect(), dimensions, label: PhantomData }
    }

    fn label_names(&self) -> Vec<&'static str> {
        self.dimensions.iter().map(|(name, _)| *name).collect()
    }

    fn read(&self) -> Vec<Cell> {
        let cells = self.cells.iter().enumerate();
        cells.map(|(index, cell)| Cell { labels: self.labels_of(index), value: cell.value() }).collect()
    }
}

impl<M, L> Family<M, L> {
    /// Label values of cell `index`, outermost first.
    fn labels_of(&self, index: usize) -> Vec<String> {
        let mut rest = index;
        let mut labels: Vec<String> = Vec::new();
        for (_, values) in self.dimensions.iter().rev() {
            labels.push(values[rest % values.len()].to_owned());
            rest /= values.len();
        }
        labels.reverse();
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, HeldMode, MessageKind, TokenKind};

    const TABLES: Tables = Tables { message_kinds: &["hello", "grant"] };

    #[test]
    fn two_dimensions_name_each_cell() {
        let family: Family<Counter, (TokenKind, HeldMode)> = Family::create(&TABLES);
        family.add((TokenKind::Attr, HeldMode::Ex), 3);
        let cells = family.read();
        let found: Vec<_> = cells.iter().filter(|cell| !cell.value.is_zero()).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].labels, ["attr", "ex"]);
        assert_eq!(family.label_names(), ["resource", "mode"]);
    }

    #[test]
    fn an_index_past_the_table_counts_as_other() {
        let family: Family<Counter, MessageKind> = Family::create(&TABLES);
        family.add(MessageKind(1), 1);
        family.add(MessageKind(99), 5);
        let cells = family.read();
        assert_eq!(cells[1].labels, ["grant"]);
        assert_eq!(cells[2].labels, ["other"]);
        assert_eq!(cells[2].value, crate::Value::Counter(5));
        assert_eq!(family.sum(), 6);
    }
}
