use super::*;

/// Runs `work` on a thread with a placement of its own.
fn placed(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        let Some(_placement) = Placement::begin() else {
            println!("SKIPPED: this user may not leave SCHED_IDLE");
            return;
        };
        work();
    });
    thread.join().expect("no panic");
}

/// Asked once, and answered around `during`.
fn serve_to(pid: u32, opcode: Option<Opcode>, during: impl FnOnce()) {
    before_read();
    asked(pid, 100, opcode);
    answering(100, during);
}

/// Asked and answered until it is active, then answers once more around `during`.
fn serve(during: impl FnOnce()) {
    for _ in 0..STREAK_MIN {
        before_read();
        asked(0, 100, None);
        answering(100, || ());
    }
    before_read();
    asked(0, 100, None);
    answering(100, during);
}

/// Whether it steps back for an answer: not always for the first, as it may be kept from its CPU between two, which ends the burst.
fn steps_back() -> bool {
    let mut is_back = false;
    for _ in 0..20 {
        serve(|| is_back |= policy() == SCHED_IDLE);
    }
    is_back
}

/// Goal: what a caller does once he is answered is not taken for time that the answer took. Method: the call that sends it lasts, as it does where the caller
/// goes first; and a long answer, of which he has nothing before all of it is copied.
#[test]
fn a_short_answer_is_given_when_it_is_sent_and_a_long_one_when_that_is_over() {
    placed(|| {
        let lasts = Duration::from_millis(5);
        let begun = Instant::now();
        answering(100, || std::thread::sleep(lasts));
        let given = answered_at() - begun;
        assert!(given < lasts, "{given:?}");
        let begun = Instant::now();
        answering(SMALL + 1, || std::thread::sleep(lasts));
        let given = answered_at() - begun;
        assert!(given >= lasts, "{given:?}");
    });
    let before = Instant::now();
    assert!(answered_at() >= before, "no reader: now");
}

fn spin(how_long: Duration) {
    let until = Instant::now() + how_long;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn policy() -> c_int {
    policy_of(rustix::thread::gettid()).expect("known")
}

fn wait_for_help() {
    let start = Instant::now();
    while policy() == SCHED_IDLE {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody helps");
        std::thread::yield_now();
    }
}

/// Waits until the watch has taken note that the reader is not back any more, and let it go.
fn wait_until_free(allowed: &CpuSet) {
    let is_back =
        || PLACE.with_borrow(|place| place.as_ref().is_some_and(|p| p.shared.is_back.load(Ordering::SeqCst)));
    let start = Instant::now();
    while is_back() || sched_getaffinity(None).expect("known") != *allowed {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody helps");
        std::thread::yield_now();
    }
}

#[test]
fn it_steps_back_for_the_length_of_a_burst() {
    placed(|| {
        answering(100, || assert_eq!(policy(), SCHED_OTHER, "the first"));
        assert!(steps_back());
        answering(SMALL + 1, || assert_eq!(policy(), SCHED_OTHER, "a large one"));
        assert!(steps_back(), "the next burst");
        let started = spawn("other".to_owned(), policy).expect("started");
        assert_eq!(started.join().expect("no panic"), SCHED_OTHER);
        serve(|| spin(CLOSE * 2));
        before_read();
        asked(0, 100, None);
        assert_eq!(policy(), SCHED_OTHER, "a late one");
    });
}

/// Whether it stays back for who looks for a while at what a listing told him, when `before` has asked last before that.
fn waits_for_who_lists(before: u32) -> bool {
    (0..STREAK_MIN).for_each(|_| serve_to(1, None, || ()));
    serve_to(before, None, || ());
    serve_to(1, Some(Opcode::Readdirplus), || spin(CLOSE * 2));
    before_read();
    asked(1, 100, Some(Opcode::Lookup));
    let is_back = policy() == SCHED_IDLE;
    answering(100, || spin(CLOSE * 2));
    before_read();
    asked(1, 100, None);
    assert_eq!(policy(), SCHED_OTHER, "a late one");
    is_back
}

#[test]
fn who_was_told_many_names_has_longer_for_the_next_request() {
    placed(|| {
        // A machine may stop a thread for longer than that.
        assert!((0..20).any(|_| waits_for_who_lists(1)));
        assert!(!(0..20).any(|_| waits_for_who_lists(2)), "others must not wait");
    });
}

/// Goal: who counts as alone has been the only one for a while. Method: one asks, another does, and he goes on.
#[test]
fn a_caller_is_alone_when_nobody_else_has_asked_for_a_while() {
    placed(|| {
        let asks = |pid| {
            before_read();
            asked(pid, 100, None);
            is_alone()
        };
        assert!(is_reader() && !asks(1));
        spin(ALONE * 2);
        assert!((1..STREAK_MIN - 1).all(|_| !asks(1)), "he has asked too little");
        assert!(asks(1) && asks(0), "of what comes unasked nobody is told who caused it");
        let start = Instant::now();
        assert!(!asks(2));
        let was_alone = (0..STREAK_MIN).any(|_| asks(1));
        assert!(!was_alone || start.elapsed() > ALONE, "somebody else has just asked");
        spin(ALONE * 2);
        assert!(asks(1));
    });
    assert!(!is_reader() && !is_alone());
}

#[test]
fn a_reader_that_rises_steps_back_with_its_next_answer() {
    placed(|| {
        let allowed = sched_getaffinity(None).expect("known");
        rise();
        assert_eq!(policy(), SCHED_OTHER);
        let has_stepped_back = || {
            let mut is_back = false;
            answering(100, || is_back = policy() == SCHED_IDLE);
            is_back
        };
        // As for a burst that was cut short, the watch may have been there before.
        let rises_where_its_caller_waits = || {
            serve(|| ());
            rise();
            let is_bound = sched_getaffinity(None).expect("known").count() == 1;
            policy() == SCHED_OTHER && is_bound && has_stepped_back()
        };
        assert!((0..20).any(|_| rises_where_its_caller_waits()), "it waits for something");
        let steps_back_after_help = || {
            serve(|| ());
            rise();
            wait_until_free(&allowed);
            has_stepped_back()
        };
        assert!((0..20).any(|_| steps_back_after_help()), "the watch has helped meanwhile");
    });
}

/// Lets it get no CPU, with the next request there at once each time, until it does without. Returns until when, and for how long.
/// Not each time counts: it may not have stepped back, or look as if nobody had waited, where it is kept from its CPU.
fn rescue_until_plain() -> (Instant, Duration) {
    let (start, before) = (Instant::now(), plain());
    let not_counted = of_place(|place| place.helped - u64::from(place.rescues.1));
    while plain() == before {
        assert!(start.elapsed() < Duration::from_secs(60), "it never does without");
        serve(wait_for_help);
    }
    assert!(helped() - not_counted >= u64::from(RESCUES_MAX), "it had help often enough");
    let (mut seen, now) = (SCHED_OTHER, plain());
    serve(|| seen = policy());
    assert!(seen == SCHED_OTHER || Instant::now() >= now.0, "it does without");
    now
}

/// Until when it does without, and for how long.
fn plain() -> (Instant, Duration) {
    of_place(|place| (place.plain_until, place.plain_for))
}

/// How often the watch has helped.
fn helped() -> u64 {
    of_place(|place| place.shared.helped.load(Ordering::SeqCst))
}

fn of_place<T>(what: impl FnOnce(&Place) -> T) -> T {
    PLACE.with_borrow(|place| place.as_ref().map(what)).expect("it is a reader")
}

fn spin_until(end: Instant) {
    spin(end.saturating_duration_since(Instant::now()));
}

#[test]
fn a_reader_that_gets_no_cpu_is_helped_and_then_does_without() {
    placed(|| {
        let (mut until, mut how_long) = rescue_until_plain();
        assert_eq!(how_long, PLAIN_MIN);
        for round in 0.. {
            spin_until(until);
            assert!(steps_back(), "another try");
            let before = (until, how_long);
            (until, how_long) = rescue_until_plain();
            let is_again = until - before.0 < WINDOW;
            if is_again {
                assert_eq!(how_long, (before.1 * 2).min(WINDOW), "for longer now");
                break;
            }
            assert!(round < 20, "it takes more than {WINDOW:?} each time");
        }
        spin_until(until - PLAIN_MIN / 2);
        let mut seen = SCHED_OTHER;
        serve(|| seen = policy());
        assert!(seen == SCHED_OTHER || Instant::now() >= until, "it still does without");
        spin_until(until);
        assert!(steps_back(), "another try");
    });
}

#[test]
fn a_reader_whom_nobody_asks_steps_forth() {
    placed(|| {
        serve(|| ());
        before_read();
        wait_for_help();
        asked(0, 100, None);
        assert!(steps_back(), "nobody waited");
    });
}

#[test]
fn the_watch_helps_long_after_a_burst() {
    placed(|| {
        serve(wait_for_help);
        std::thread::sleep(LOOK * 20);
        serve(wait_for_help);
    });
}

#[test]
fn the_watch_sleeps_while_the_reader_is_asked() {
    placed(|| {
        serve(|| ());
        let before = helped();
        let (start, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while start.elapsed() < LOOK * 5 {
            serve_to(0, None, || spin(CLOSE / 4));
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        // A machine that stopped this thread for so long had it helped.
        assert!(helped() == before || longest > LOOK - PUT_OFF * 2, "paused for {longest:?} at most");
        before_read();
        wait_for_help();
    });
}

/// Goal: a reader that sleeps before each request moves to whom it serves, also where every other one is of nobody, as a RELEASE is. Method: a caller bound to
/// another CPU opens, flushes and releases, as the reader sees it: it sleeps before the last two.
#[test]
fn it_follows_a_caller_who_opens_and_closes() {
    let allowed = sched_getaffinity(None).expect("known");
    let here = sched_getcpu();
    let Some(there) = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu) && *cpu != here) else {
        println!("SKIPPED: one CPU");
        return;
    };
    placed(move || {
        let bind = |cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).expect("bound");
        };
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let caller = std::thread::spawn(move || {
            bind(there);
            tell.send(rustix::thread::gettid()).expect("heard");
            _ = ended.recv();
        });
        let pid = told.recv().expect("told").as_raw_nonzero().get() as u32;
        let sleeps_for = |pid| {
            before_read();
            spin(SLEPT * 2);
            asked(pid, 100, None);
            answering(100, || ());
        };
        // In a thousand and more the machine may break a burst off, after which who asks first is followed.
        let mut files = 0;
        while of_place(|place| place.shared.moves.load(Ordering::SeqCst)) == 0 {
            assert!(files < 500, "it stays where it is");
            files += 1;
            if sched_getcpu() == there {
                bind(here);
                sched_setaffinity(None, &allowed).expect("free to go");
            }
            serve_to(pid, Some(Opcode::Open), || ());
            sleeps_for(pid);
            sleeps_for(0);
        }
        drop(end);
        caller.join().expect("no panic");
    });
}

/// Goal: threads that stand aside leave the CPU of a reader, wherever it goes, and may run there again when it is let go, or they do not stand aside any
/// more. Method: one such thread, whose CPUs are looked at while a reader is bound to each.
#[test]
fn who_stands_aside_leaves_a_reader_its_cpu() {
    let allowed = sched_getaffinity(None).expect("known");
    if allowed.count() < 2 {
        println!("SKIPPED: one CPU");
        return;
    }
    let (tell, told) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let aside = stand_aside();
        tell.send(rustix::thread::gettid()).expect("heard");
        _ = ended.recv();
        let started = spawn("other".to_owned(), || sched_getaffinity(None).expect("known")).expect("started");
        let inherited = started.join().expect("no panic");
        drop(aside);
        (inherited, sched_getaffinity(None).expect("known"))
    });
    let thread = told.recv().expect("told");
    let shared = Shared::new(Timer::new().expect("made"));
    shared.is_back.store(true, Ordering::SeqCst);
    // Readers of other tests come and go.
    let becomes = |cpus: &CpuSet, what: &str, again: &dyn Fn()| {
        let start = Instant::now();
        while sched_getaffinity(Some(thread)).expect("known") != *cpus {
            assert!(start.elapsed() < Duration::from_secs(10), "{what}");
            again();
            std::thread::yield_now();
        }
    };
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(4) {
        let mut others = allowed.clone();
        others.unset(cpu);
        let bind = || shared.bind(rustix::thread::gettid(), cpu).expect("moved");
        bind();
        becomes(&others, "it stays", &bind);
    }
    shared.release(None);
    becomes(&allowed, "it may not come back", &aside::come_back);
    shared.bind(rustix::thread::gettid(), sched_getcpu()).expect("bound");
    drop(end);
    let (inherited, afterwards) = other.join().expect("no panic");
    assert!(inherited == allowed, "what it starts is not kept from a CPU");
    assert!(afterwards == allowed, "it does not stand aside any more");
    shared.release(None);
}

#[test]
fn it_moves_to_where_the_caller_is() {
    let allowed = sched_getaffinity(None).expect("known");
    let shared = Shared::new(Timer::new().expect("made"));
    shared.is_back.store(true, Ordering::SeqCst);
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(4) {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let caller = std::thread::spawn(move || {
            let mut there = CpuSet::new();
            there.set(cpu);
            sched_setaffinity(None, &there).expect("pinned");
            tell.send(rustix::thread::gettid()).expect("heard");
            _ = ended.recv();
        });
        let pid = told.recv().expect("told").as_raw_nonzero().get() as u32;
        assert_eq!(cpu_of(pid), Some(cpu));
        shared.bind(rustix::thread::gettid(), cpu).expect("moved");
        assert_eq!(sched_getcpu(), cpu);
        shared.release(None);
        assert!(sched_getaffinity(None).expect("known") == allowed, "free to go");
        drop(end);
        caller.join().expect("no panic");
        let start = Instant::now();
        while cpu_of(pid).is_some() {
            assert!(start.elapsed() < Duration::from_secs(10), "it is gone");
            std::thread::yield_now();
        }
    }
    assert!(shared.bind(rustix::thread::gettid(), CpuSet::MAX_CPU).is_err() && cpu_of(0).is_none());
}
