//! Whether histories of processes are those of one lock manager.
//!
//! From each answer follows what its owner held for certain (from the answer that gave it to the call that gave it up) and
//! what it may have held (from the call that asked to the answer that it is gone). Certain holds must not collide; what was
//! refused must be explained by a hold that may have been, and what was said to be free by none that was for certain.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Call, Event, Family, Mode, PLACES, UNITS, places};

/// One process, from its first call to its end.
#[derive(Clone, Debug)]
pub struct Life {
    pub name: String,
    pub events: Vec<Event>,
    /// When it was killed, or its node, and when that was over; `None` if it gave everything up in order.
    pub died: Option<(u64, u64)>,
    /// When its node was killed, with what had been written there and was not durable.
    pub node_died: Option<u64>,
}

/// Process and slot; those of open file descriptions are counted through all files.
type Owner = (usize, u8);

fn owner(process: usize, file: u8, slot: u8) -> Owner {
    (process, if slot == 0 { 0 } else { file * 16 + slot })
}

/// What collides with each other.
type Field = (Family, u8);

#[derive(Clone, Copy, Debug)]
struct Hold {
    owner: Owner,
    mode: Mode,
    unit: u8,
    from: u64,
    to: u64,
}

/// A call that may have waited.
#[derive(Clone, Copy, Debug)]
struct Wait {
    field: Field,
    owner: Owner,
    mode: Mode,
    range: (u8, u8),
    from: u64,
    to: u64,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Tally {
    pub answers: BTreeMap<&'static str, u64>,
    pub counts: u64,
    /// Waits that were answered, in microseconds, sorted.
    pub waits: Vec<u64>,
}

/// Checks everything. The counters are what the files hold at the end.
pub fn judge(lives: &[Life], counters: &[[u64; UNITS as usize]]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut holds = Holds::default();
    for (number, life) in lives.iter().enumerate() {
        follow(number, life, &mut holds, &mut tally)?;
    }
    tally.waits.sort_unstable();
    collide(lives, &mut holds.certain)?;
    let certain = Index::new(&holds.certain);
    let possible = Index::new(&holds.possible);
    for (number, life) in lives.iter().enumerate() {
        for event in &life.events {
            explain(number, event, &certain, &possible, &holds.waits)
                .map_err(|what| format!("{}: {event:?}: {what}", life.name))?;
        }
    }
    count(lives, counters, &mut tally)?;
    Ok(tally)
}

#[derive(Default)]
struct Holds {
    certain: BTreeMap<Field, Vec<Hold>>,
    possible: BTreeMap<Field, Vec<Hold>>,
    /// For record locks: a process may wait in one file for who waits for it in another.
    waits: Vec<Wait>,
}

/// What an owner has of a unit now.
#[derive(Clone, Copy)]
struct Now {
    mode: Mode,
    /// Since when for certain.
    since: u64,
    /// Since when perhaps.
    asked: u64,
}

const NOTHING: Now = Now { mode: Mode::None, since: 0, asked: 0 };

struct Follower<'a> {
    number: usize,
    holds: &'a mut Holds,
    now: BTreeMap<(Field, u8), [Now; PLACES as usize]>,
    /// When it was killed, or its node: nothing is held for certain from then on, whatever its calls say until they fail.
    killed: u64,
}

impl Follower<'_> {
    /// An owner's hold of a unit ends: no more for certain from `began`, gone for certain at `ended`.
    fn leave(&mut self, field: Field, slot: u8, unit: u8, (began, ended): (u64, u64)) -> Mode {
        let all = self.now.entry((field, slot)).or_insert([NOTHING; PLACES as usize]);
        let old = std::mem::replace(&mut all[usize::from(unit)], NOTHING);
        if old.mode != Mode::None {
            let owner = owner(self.number, field.1, slot);
            let hold = Hold { owner, mode: old.mode, unit, from: old.since, to: began.min(self.killed) };
            self.holds.certain.entry(field).or_default().push(hold);
            self.holds.possible.entry(field).or_default().push(Hold { from: old.asked, to: ended, ..hold });
        }
        old.mode
    }

    fn take(&mut self, field: Field, slot: u8, unit: u8, mode: Mode, (began, ended): (u64, u64)) {
        let old = self.leave(field, slot, unit, (began, ended));
        // fcntl(2) converts at once: what both have is kept all the time.
        let kept = old.min(mode);
        if field.0 == Family::Records && kept != Mode::None {
            let owner = owner(self.number, field.1, slot);
            let hold = Hold { owner, mode: kept, unit, from: began, to: ended.min(self.killed) };
            self.holds.certain.entry(field).or_default().push(hold);
        }
        if let Some(all) = self.now.get_mut(&(field, slot)) {
            all[usize::from(unit)] = Now { mode, since: ended, asked: began };
        }
    }

    fn leave_all(&mut self, time: (u64, u64), is_it: impl Fn(Field, u8) -> bool) {
        let keys: Vec<(Field, u8)> = self.now.keys().copied().filter(|(f, slot)| is_it(*f, *slot)).collect();
        for (field, slot) in keys {
            for unit in 0..PLACES {
                self.leave(field, slot, unit, time);
            }
        }
    }
}

/// Walks through the calls of a life.
fn follow(number: usize, life: &Life, holds: &mut Holds, tally: &mut Tally) -> Result<(), String> {
    let killed = life.died.map_or(u64::MAX, |(killed, _)| killed);
    let mut follower = Follower { number, holds, now: BTreeMap::new(), killed };
    for event in &life.events {
        let died = life.died.map(|(_, gone)| gone);
        let (ended, answer) = match event.ended {
            Some((ended, answer)) => (ended, Some(answer)),
            None => (died.ok_or_else(|| format!("{}: {event:?} has no end", life.name))?, None),
        };
        let is_gone = matches!(answer, None | Some(Answer::Error(_)));
        if is_gone && life.died.is_none() {
            return Err(format!("{}: {event:?}", life.name));
        }
        // What was under way when a process or its node died may have come about and stayed until all was over.
        let ended = if is_gone { ended.max(died.unwrap_or(0)) } else { ended };
        *tally.answers.entry(name(answer)).or_default() += 1;
        let time = (event.began, ended);
        match event.call {
            Call::Set { family, file, slot, mode, start, len, wait } => {
                let field = (family, file);
                if wait && mode != Mode::None {
                    let (from, to) = time;
                    let owner = owner(number, file, slot);
                    let wait = Wait { field, owner, mode, range: (start, len), from, to };
                    if family == Family::Records {
                        follower.holds.waits.push(wait);
                    }
                    if !is_gone {
                        tally.waits.push(ended - event.began);
                    }
                }
                for unit in places(start, len) {
                    match answer {
                        Some(Answer::Done) => follower.take(field, slot, unit, mode, time),
                        // flock(2) gives up before it takes.
                        Some(_) if family == Family::Whole => _ = follower.leave(field, slot, unit, time),
                        Some(Answer::Error(_)) | None => {
                            follower.leave(field, slot, unit, time);
                            if mode != Mode::None {
                                let (from, to) = time;
                                let hold = Hold { owner: owner(number, file, slot), mode, unit, from, to };
                                follower.holds.possible.entry(field).or_default().push(hold);
                            }
                        }
                        Some(_) => {}
                    }
                }
            }
            Call::Reopen { file, slot } => follower.leave_all(time, |field, of| {
                field.1 == file && (of == slot || (of == 0 && field.0 == Family::Records))
            }),
            Call::Test { .. } | Call::Count { .. } => {}
        }
    }
    match life.died {
        Some(time) => follower.leave_all(time, |_, _| true),
        None => {
            let has_left = follower.now.values().flatten().all(|now| now.mode == Mode::None);
            if !has_left {
                return Err(format!("{} ended with locks", life.name));
            }
        }
    }
    Ok(())
}

fn name(answer: Option<Answer>) -> &'static str {
    match answer {
        Some(Answer::Done) => "done",
        Some(Answer::Again) => "EAGAIN",
        Some(Answer::Interrupted) => "EINTR",
        Some(Answer::Deadlock) => "EDEADLK",
        Some(Answer::Free) => "free",
        Some(Answer::Found { .. }) => "found",
        Some(Answer::Error(_)) => "error of a dead node",
        None => "killed",
    }
}

fn collides(a: Mode, b: Mode) -> bool {
    a != Mode::None && b != Mode::None && (a == Mode::Exclusive || b == Mode::Exclusive)
}

/// No two owners held for certain at one time what excludes each other.
fn collide(lives: &[Life], certain: &mut BTreeMap<Field, Vec<Hold>>) -> Result<(), String> {
    for (field, holds) in certain {
        holds.sort_unstable_by_key(|hold| hold.from);
        for unit in 0..PLACES {
            let mut active: Vec<Hold> = Vec::new();
            for hold in holds.iter().filter(|hold| hold.unit == unit && hold.from < hold.to) {
                active.retain(|other| other.to > hold.from);
                let other =
                    active.iter().find(|other| other.owner != hold.owner && collides(other.mode, hold.mode));
                if let Some(other) = other {
                    let name =
                        |hold: &Hold| format!("{} slot {}", lives[hold.owner.0].name, hold.owner.1 % 16);
                    let (a, b) = (name(other), name(hold));
                    return Err(format!("{field:?}: two at once: {a} {other:?} and {b} {hold:?}"));
                }
                active.push(*hold);
            }
        }
    }
    Ok(())
}

/// Holds by the time at which they were.
struct Index<'a> {
    fields: BTreeMap<Field, BTreeMap<u64, Vec<&'a Hold>>>,
}

/// Microseconds of a place in the index.
const BUCKET: u64 = 20_000;

impl<'a> Index<'a> {
    fn new(holds: &'a BTreeMap<Field, Vec<Hold>>) -> Self {
        let mut fields: BTreeMap<Field, BTreeMap<u64, Vec<&Hold>>> = BTreeMap::new();
        for (field, holds) in holds {
            let buckets = fields.entry(*field).or_default();
            for hold in holds {
                for bucket in hold.from / BUCKET..=hold.to / BUCKET {
                    buckets.entry(bucket).or_default().push(hold);
                }
            }
        }
        Self { fields }
    }

    /// Holds of others within a range that exclude `mode` and touch a time.
    fn in_way(
        &self,
        field: Field,
        owner: Owner,
        mode: Mode,
        (start, len): (u8, u8),
        (from, to): (u64, u64),
    ) -> impl Iterator<Item = &'a Hold> + use<'a> {
        let wanted = places(start, len);
        let buckets = self.fields.get(&field).into_iter();
        let found: Vec<&Hold> = buckets
            .flat_map(|buckets| buckets.range(from / BUCKET..=to / BUCKET))
            .flat_map(|(_, holds)| holds.iter().copied())
            .filter(|hold| hold.owner != owner && collides(hold.mode, mode) && wanted.contains(&hold.unit))
            .filter(|hold| hold.from <= to && hold.to >= from)
            .collect();
        found.into_iter()
    }
}

/// Whether an answer could be given.
fn explain(
    number: usize,
    event: &Event,
    certain: &Index<'_>,
    possible: &Index<'_>,
    waits: &[Wait],
) -> Result<(), String> {
    let Some((ended, answer)) = event.ended else { return Ok(()) };
    let time = (event.began, ended);
    match (event.call, answer) {
        (Call::Set { family, file, slot, mode, start, len, .. }, Answer::Again) => {
            let mut in_way =
                possible.in_way((family, file), owner(number, file, slot), mode, (start, len), time);
            if in_way.next().is_none() { Err("nobody was in the way".to_owned()) } else { Ok(()) }
        }
        (Call::Set { family, file, slot, mode, start, len, .. }, Answer::Deadlock) => {
            let (field, owner) = ((family, file), owner(number, file, slot));
            let wait = Wait { field, owner, mode, range: (start, len), from: time.0, to: time.1 };
            if is_circle(wait, possible, waits) {
                Ok(())
            } else {
                Err("nobody whom it would wait for waited for it".to_owned())
            }
        }
        (Call::Test { file, slot, mode, start, len }, Answer::Free) => {
            let field = (Family::Records, file);
            let mut in_way = certain.in_way(field, owner(number, file, slot), mode, (start, len), time);
            match in_way.find(|hold| hold.from <= time.0 && hold.to >= time.1) {
                Some(hold) => Err(format!("{hold:?} was there all the time")),
                None => Ok(()),
            }
        }
        (Call::Test { file, slot, mode, start, len }, Answer::Found { mode: kind, start: at, len: of }) => {
            let found = places(at as u8, of as u8);
            let owner = owner(number, file, slot);
            let mut in_way = possible.in_way((Family::Records, file), owner, mode, (start, len), time);
            match in_way.any(|hold| hold.mode == kind && found.contains(&hold.unit)) {
                true => Ok(()),
                false => Err("no such lock was there".to_owned()),
            }
        }
        _ => Ok(()),
    }
}

/// Whether whoever is waited for may have waited, over any number of steps, for the one who waits first.
fn is_circle(first: Wait, possible: &Index<'_>, waits: &[Wait]) -> bool {
    let time = (first.from, first.to);
    let at_that_time: Vec<&Wait> = waits.iter().filter(|w| w.from <= time.1 && w.to >= time.0).collect();
    let (mut next, mut seen) = (vec![first], BTreeSet::new());
    while let Some(wait) = next.pop() {
        let holders =
            possible.in_way(wait.field, wait.owner, wait.mode, wait.range, time).map(|hold| hold.owner);
        let overlaps = |other: &&&Wait| {
            let (a, b) = (places(wait.range.0, wait.range.1), places(other.range.0, other.range.1));
            other.owner != wait.owner && collides(other.mode, wait.mode) && a.start < b.end && b.start < a.end
        };
        let ahead = at_that_time.iter().filter(overlaps).map(|other| other.owner);
        for owner in holders.chain(ahead) {
            if owner == first.owner {
                return true;
            }
            if seen.insert(owner) {
                next.extend(at_that_time.iter().filter(|w| w.owner == owner).map(|w| **w));
            }
        }
    }
    false
}

/// Under exclusive locks each value is found once, later ones later, and none is lost.
fn count(lives: &[Life], counters: &[[u64; UNITS as usize]], tally: &mut Tally) -> Result<(), String> {
    let mut found: BTreeMap<(u8, u8), Vec<(u64, u64, &str)>> = BTreeMap::new();
    let mut unsure: BTreeMap<(u8, u8), u64> = BTreeMap::new();
    for life in lives {
        for event in &life.events {
            let Call::Count { file, unit, value } = event.call else { continue };
            let is_done = matches!(event.ended, Some((_, Answer::Done)));
            let is_kept = life.node_died.is_none_or(|died| event.began + DURABLE < died);
            match is_done && is_kept {
                true => found.entry((file, unit)).or_default().push((event.began, value, &life.name)),
                false => *unsure.entry((file, unit)).or_default() += 1,
            }
        }
    }
    for ((file, unit), mut list) in found {
        list.sort_unstable();
        tally.counts += list.len() as u64;
        if let Some(pair) = list.windows(2).find(|pair| pair[1].1 <= pair[0].1) {
            return Err(format!("file {file}, unit {unit}: {:?} was followed by {:?}", pair[0], pair[1]));
        }
        let end = counters[usize::from(file)][usize::from(unit)];
        let sure = list.len() as u64;
        let most = sure + unsure.get(&(file, unit)).copied().unwrap_or(0);
        if !(sure..=most).contains(&end) {
            return Err(format!(
                "file {file}, unit {unit}: {end} at the end, counted {sure} to {most} times"
            ));
        }
    }
    Ok(())
}

/// After this long, in microseconds, nothing is lost with a node.
const DURABLE: u64 = 4_000_000;

/// The judgement can fail.
mod tests {
    use super::*;

    fn set(slot: u8, mode: Mode, wait: bool) -> Call {
        Call::Set { family: Family::Records, file: 0, slot, mode, start: 1, len: 1, wait }
    }

    fn life(name: &str, events: &[(Call, u64, u64, Answer)]) -> Life {
        let event = |(call, began, ended, answer): &(Call, u64, u64, Answer)| Event {
            call: *call,
            began: *began,
            ended: Some((*ended, *answer)),
        };
        let events = events.iter().map(event).collect();
        Life { name: name.to_owned(), events, died: None, node_died: None }
    }

    fn verdict(lives: &[Life]) -> Result<(), String> {
        judge(lives, &[[0; UNITS as usize]]).map(drop)
    }

    #[test]
    fn what_a_dead_node_held_is_free_from_its_death_on() {
        let take = |at| (set(0, Mode::Exclusive, true), at, at + 1, Answer::Done);
        let failed = (set(0, Mode::None, false), 60, 61, Answer::Error(107));
        let mut dead = life("a", &[take(10), failed]);
        let heir = life("b", &[take(50), (set(0, Mode::None, false), 70, 71, Answer::Done)]);
        for (killed, is_good) in [(40, true), (55, false)] {
            dead.died = Some((killed, 65));
            assert_eq!(verdict(&[dead.clone(), heir.clone()]).is_ok(), is_good, "killed at {killed}");
        }
    }

    #[test]
    fn two_exclusive_holders_are_found() {
        let hold = |at| {
            [
                (set(0, Mode::Exclusive, true), at, at + 1, Answer::Done),
                (set(0, Mode::None, false), at + 10, at + 11, Answer::Done),
            ]
        };
        verdict(&[life("a", &hold(10)), life("b", &hold(20))]).expect("one behind the other");
        verdict(&[life("a", &hold(10)), life("b", &hold(15))]).expect_err("both at once");
    }

    #[test]
    fn a_refusal_for_nothing_is_found() {
        let held = [
            (set(0, Mode::Shared, true), 10, 11, Answer::Done),
            (set(0, Mode::None, false), 20, 21, Answer::Done),
        ];
        let refused = |at| life("b", &[(set(0, Mode::Exclusive, false), at, at + 1, Answer::Again)]);
        verdict(&[life("a", &held), refused(20)]).expect("it may still be there");
        verdict(&[life("a", &held), refused(22)]).expect_err("nobody was there");
    }

    #[test]
    fn a_deadlock_without_a_circle_is_found() {
        let held = [
            (set(0, Mode::Exclusive, true), 10, 11, Answer::Done),
            (set(0, Mode::None, false), 90, 91, Answer::Done),
        ];
        let refused = [(set(0, Mode::Exclusive, true), 20, 21, Answer::Deadlock)];
        verdict(&[life("a", &held), life("b", &refused)]).expect_err("a waited for nobody");
    }

    #[test]
    fn a_free_range_that_is_held_is_found() {
        let held = [
            (set(0, Mode::Exclusive, true), 10, 11, Answer::Done),
            (set(0, Mode::None, false), 90, 91, Answer::Done),
        ];
        let test = Call::Test { file: 0, slot: 0, mode: Mode::Shared, start: 0, len: 0 };
        verdict(&[life("a", &held), life("b", &[(test, 20, 21, Answer::Free)])]).expect_err("it is held");
    }

    #[test]
    fn a_count_that_was_lost_is_found() {
        let count = |value| Call::Count { file: 0, unit: 0, value };
        let counts = [(count(0), 1, 2, Answer::Done), (count(0), 3, 4, Answer::Done)];
        verdict(&[life("a", &counts)]).expect_err("0 twice");
    }
}
