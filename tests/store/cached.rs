//! A hot statement is prepared once per connection and kept.

use std::collections::HashSet;

use crate::hot;
use crate::kit::{Event, Watched};
use crate::places::{Place, engines};

#[test]
fn hot_statements_are_prepared_once() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut on = Watched::new(&place);
        let mut kept = HashSet::new();
        for hot in hot::ALL {
            (hot.run)(&mut on, "first");
            kept.extend(on.take().into_iter().filter_map(|event| match event {
                Event::Prepared(sql) => Some(sql),
                Event::Ran(_) => None,
            }));
        }
        for hot in hot::ALL {
            (hot.run)(&mut on, "second");
            for event in on.take() {
                match event {
                    Event::Prepared(sql) => {
                        panic!("{engine:?}, {}: prepared again: {sql}", hot.name)
                    }
                    Event::Ran(sql) => {
                        assert!(kept.contains(&sql), "{engine:?}, {}: not kept: {sql}", hot.name);
                    }
                }
            }
        }
    }
}
