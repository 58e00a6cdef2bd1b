//! Leases by the clock of the store.

use leasehold::clock::{Clock, SystemClock};
use leasehold::db::ops::{self, ClaimOutcome};
use leasehold::db::{Mode, Moment, Store, StoreUrl};
use leasehold::domain::run::RunEpoch;
use leasehold::ids::RandomIds;

use crate::kit::{claim, submit};
use crate::places::{Engine, Place, engines};

/// How far the server's clock is ahead of this host's, in seconds.
const AHEAD: f64 = 1000.0;
/// Only a stuck machine takes so long.
const SLACK: f64 = 100.0;

/// On which side of the host's clock the store's is.
fn store_at(place: &Place) -> (Store, f64) {
    let (url, ahead) = match place.engine {
        Engine::Sqlite => (place.url.clone(), 0.0),
        Engine::Postgres => (place.with_a_clock_ahead_by(AHEAD), AHEAD),
    };
    let url = StoreUrl::parse(&url).unwrap();
    (Store::open(&url, Mode::Write, &SystemClock, &RandomIds).unwrap(), ahead)
}

#[test]
fn every_statement_about_a_lease_counts_from_the_clock_of_the_store() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut store, ahead) = store_at(&place);
        let name = engine.name();
        let is_in = |at: f64, seconds: f64| {
            let off = at - SystemClock.now() - ahead - seconds;
            assert!((-SLACK..=1.0).contains(&off), "{name}: {off} s off");
        };
        is_in(store.read(&ops::Clock).unwrap(), 0.0);

        store.write(&submit("r")).unwrap();
        let mut first = claim("r", None, "old", "f1");
        first.lease_expires_at = Moment::FromNow(300.0);
        assert_eq!(store.write(&first).unwrap(), ClaimOutcome::Won { epoch: 1 });
        let expiry = |store: &mut Store| {
            let run = store.read(&ops::FindRun { run_id: "r".into() }).unwrap().unwrap();
            run.lease_expires_at.unwrap()
        };
        is_in(expiry(&mut store), 300.0);

        let run = RunEpoch { run_id: "r".into(), epoch: 1 };
        let renew = |seconds| ops::Renew {
            owner: "old".into(),
            runs: vec![run.clone()],
            lease_expires_at: Moment::FromNow(seconds),
        };
        assert_eq!(store.write(&renew(600.0)).unwrap().len(), 1);
        is_in(expiry(&mut store), 600.0);
        assert_eq!(store.write(&renew(10.0)).unwrap().len(), 1, "{name}: it is still a renewal");
        is_in(expiry(&mut store), 600.0);

        let expired = |store: &mut Store, seconds| {
            let page = ops::ExpiredPage { now: Moment::FromNow(seconds), after: None };
            store.read(&page).unwrap().len()
        };
        assert_eq!((expired(&mut store, 400.0), expired(&mut store, 700.0)), (0, 1), "{name}");
        let lasts = |store: &mut Store, seconds| {
            let see = ops::SeeRun { run_id: "r".into(), now: Moment::FromNow(seconds) };
            store.read(&see).unwrap().unwrap().lasts
        };
        assert_eq!((lasts(&mut store, 400.0), lasts(&mut store, 700.0)), (true, false), "{name}");

        let take_over = |seconds| ops::TakeOver {
            run: run.clone(),
            from: "old".into(),
            to: "new".into(),
            now: Some(Moment::FromNow(seconds)),
            lease_expires_at: Moment::FromNow(900.0),
        };
        assert!(!store.write(&take_over(700.0)).unwrap(), "{name}: it has run out by then");
        assert!(store.write(&take_over(400.0)).unwrap(), "{name}");
        is_in(expiry(&mut store), 900.0);
    }
}
