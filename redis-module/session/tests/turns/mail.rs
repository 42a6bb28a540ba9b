//! News: what is put into mailboxes, who is told of a claim, and what has a bound.

use std::sync::Arc;

use mooring_session::SessionPlace;
use mooring_session::StepProgress;
use mooring_session::limits::{NEWS_ITEMS_MAX, WATCHED_MAX};
use mooring_session::news::{News, NewsItem};
use mooring_session::time::Monotonic;

use crate::fixture::{Deaths, Node, place, server, worker};

const LATER: Monotonic = Monotonic::from_ms(1_000);

fn settled(news: &mut News, name: &str) -> usize {
    news.take(&worker(name), usize::MAX, |_| true).len()
}

#[test]
fn whoever_was_told_of_a_claim_is_told_once_when_it_settles() {
    let mut news = News::new();
    let tools = server("tools");
    for name in ["a", "b", "a"] {
        news.watch(&worker(name), &place(), &tools, LATER);
    }
    news.settle(&place(), &server("other"));
    news.settle(&SessionPlace::new(1, &place().key), &tools);
    assert!(!news.has(&worker("a")));
    news.settle(&place(), &tools);
    let item = NewsItem::Settled {
        session: Arc::new(place()),
        server: tools.clone(),
    };
    assert_eq!(news.take(&worker("a"), 10, |_| true), [item]);
    assert_eq!(settled(&mut news, "b"), 1);
    news.settle(&place(), &tools);
    assert!(!news.has(&worker("a")));
    assert_eq!(news.next_deadline(), None);
}

#[test]
fn a_claim_that_lapses_is_told_too() {
    let mut news = News::new();
    news.watch(&worker("a"), &place(), &server("tools"), LATER);
    news.advance(Monotonic::from_ms(999), &Deaths::default(), 10);
    assert!(!news.has(&worker("a")));
    // The claim was renewed, as the next who was told of it heard.
    let renewed = Monotonic::from_ms(2_000);
    news.watch(&worker("b"), &place(), &server("tools"), renewed);
    news.advance(LATER, &Deaths::default(), 10);
    assert!(!news.has(&worker("a")));
    assert_eq!(news.next_deadline(), Some(renewed));
    news.advance(renewed, &Deaths::default(), 10);
    assert_eq!((settled(&mut news, "a"), settled(&mut news, "b")), (1, 1));
}

#[test]
fn a_database_that_is_emptied_settles_what_was_claimed_there() {
    let now = Monotonic::from_ms(1);
    let tools = server("tools");
    for (gone, told) in [(Some(0), (1, 0)), (Some(1), (0, 1)), (None, (1, 1))] {
        let mut news = News::new();
        news.watch(&worker("a"), &place(), &tools, LATER);
        let elsewhere = SessionPlace::new(1, &place().key);
        news.watch(&worker("b"), &elsewhere, &tools, LATER);
        news.settle_database(gone);
        news.advance(now, &Deaths::default(), 10);
        assert_eq!((settled(&mut news, "a"), settled(&mut news, "b")), told);
    }
}

#[test]
fn a_session_that_ends_settles_everything() {
    let mut news = News::new();
    for name in ["one", "two"] {
        news.watch(&worker("a"), &place(), &server(name), LATER);
    }
    news.settle_session(&place());
    assert_eq!(settled(&mut news, "a"), 2);
}

#[test]
fn a_batch_has_a_bound_and_turns_come_first() {
    let mut node = Node::new();
    for name in ["one", "two", "three"] {
        node.news
            .watch(&worker("b"), &place(), &server(name), LATER);
    }
    node.news.settle_session(&place());
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    let first = node.news.take(&worker("b"), 2, |_| true);
    assert!(matches!(
        first[..],
        [NewsItem::Turn { .. }, NewsItem::Settled { .. }]
    ));
    assert_eq!(node.news.take(&worker("b"), 5, |_| true).len(), 2);
    assert!(!node.news.has(&worker("b")));
}

#[test]
fn who_has_news_is_named_once() {
    let mut news = News::new();
    for name in ["a", "b"] {
        news.watch(&worker(name), &place(), &server("tools"), LATER);
    }
    news.settle_session(&place());
    assert_eq!(news.pop_fresh(), Some(worker("a")));
    assert_eq!(news.pop_fresh(), Some(worker("b")));
    assert_eq!(news.pop_fresh(), None);
    assert!(news.has(&worker("a")));
}

#[test]
fn the_mail_of_the_dead_is_dropped() {
    let mut news = News::new();
    for n in 0..10 {
        news.watch(&worker(&format!("w{n}")), &place(), &server("tools"), LATER);
    }
    news.settle_session(&place());
    let deaths = Deaths([worker("w7"), worker("w3")].into());
    for _ in 0..5 {
        assert_eq!(news.advance(LATER, &deaths, 3), StepProgress::Done);
    }
    for n in 0..10 {
        let name = format!("w{n}");
        assert_eq!(news.has(&worker(&name)), n != 7 && n != 3, "{name}");
    }
}

#[test]
fn mailboxes_and_watches_have_bounds() {
    let mut news = News::new();
    let place = |n: usize| SessionPlace::new(0, format!("s{n}").as_bytes());
    let tools = server("tools");
    for n in 0..NEWS_ITEMS_MAX + 10 {
        news.post_settled(&worker("a"), &Arc::new(place(n)), &tools);
    }
    assert_eq!(settled(&mut news, "a"), NEWS_ITEMS_MAX);
    for n in 0..WATCHED_MAX + 10 {
        let name = format!("w{}", n % 10);
        news.watch(&worker(&name), &place(n), &tools, LATER);
    }
    assert_eq!(
        news.advance(LATER, &Deaths::default(), WATCHED_MAX + 1),
        StepProgress::Done
    );
    let told: usize = (0..10).map(|n| settled(&mut news, &format!("w{n}"))).sum();
    assert_eq!(told, WATCHED_MAX);
}

/// What finds no room is a turn not picked up.
#[test]
fn a_turn_that_cannot_be_told_passes_on() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    for n in 0..NEWS_ITEMS_MAX {
        let other = Arc::new(SessionPlace::new(0, format!("s{n}").as_bytes()));
        node.news
            .post_settled(&worker("b"), &other, &server("tools"));
    }
    node.leaves("a1").unwrap();
    node.pass(1_000);
    assert_eq!(node.hears("c"), ["c1"]);
}
