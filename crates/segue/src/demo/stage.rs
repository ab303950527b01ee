//! Where it is waited, and shown meanwhile what happens.

use std::time::{Duration, SystemTime};

use gateway::{Gateway, Snapshot, load::Tallied};
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{
    load::{Doors, Load},
    screen::Screen,
    view::{Rate, Step, View, doing, in_flight, line},
    watch::{Known, Seen},
};
use crate::output::{self, Error, Format};

/// How often is looked. Changes of the API are seen at once.
const LOOK: Duration = Duration::from_millis(100);

/// How what happens is shown.
#[derive(Debug)]
enum Shown {
    /// In place.
    Screen(Screen),
    /// Line by line.
    Lines,
    /// Line by line, beside an answer for programs.
    Aside,
}

/// Everything that is looked at.
#[derive(Debug)]
pub(super) struct Stage {
    began: Instant,
    heading: String,
    gateway: Gateway,
    seen: Seen,
    load: Option<Load>,
    rate: Rate,
    act: String,
    told: Option<String>,
    steps: Vec<Step>,
    shown: Shown,
}

impl Stage {
    pub(super) fn open(
        heading: String,
        client: &Client,
        gateway: Gateway,
        format: Format,
    ) -> Result<Self, Error> {
        let shown = match format {
            Format::Json => Shown::Aside,
            Format::Table => Screen::take()?.map_or(Shown::Lines, Shown::Screen),
        };
        let (seen, rate, steps) = (Seen::follow(client), Rate::default(), Vec::new());
        let (began, act) = (Instant::now(), String::new());
        let stage = Self { began, heading, gateway, seen, load: None, rate, act, told: None, steps, shown };
        stage.say(&stage.heading)?;
        Ok(stage)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn known(&self) -> Known {
        self.seen.known()
    }

    pub(super) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// What the gateway has counted. Nobody here asks when.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.gateway.snapshot(SystemTime::UNIX_EPOCH)
    }

    pub(super) fn tallied(&self) -> Tallied {
        self.load.as_ref().map(Load::tallied).unwrap_or_default()
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The demonstration goes on to its next act.
    pub(super) fn act(&mut self, act: &str) -> Result<(), Error> {
        act.clone_into(&mut self.act);
        self.step(act.to_owned())?;
        self.show()
    }

    pub(super) fn let_users_in(&mut self, doors: Doors, per_second: u32) {
        self.load = Some(Load::start(doors, per_second));
    }

    /// Nothing new is asked; waits for what was. False if that takes too long.
    pub(super) async fn let_users_go(&mut self, limit: Duration) -> Result<bool, Error> {
        if let Some(load) = &self.load {
            load.stop();
        }
        let over = |stage: &mut Self| stage.load.as_mut().is_none_or(Load::is_over).then_some(());
        Ok(self.look_until(limit, over).await?.is_some())
    }

    /// Looks and shows until `done` answers, or gives up.
    pub(super) async fn look_until<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let give_up = Instant::now() + limit;
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.show()?;
            if let Some(answer) = done(self) {
                return Ok(Some(answer));
            }
            tokio::select! {
                () = sleep_until(give_up) => return Ok(None),
                _ = ticks.tick() => {}
                () = self.seen.changed() => {}
            }
        }
    }

    fn show(&mut self) -> Result<(), Error> {
        let (elapsed, load, known) = (self.elapsed(), self.tallied(), self.known());
        let told = doing(&known.status);
        if told.is_some() && told != self.told {
            self.told.clone_from(&told);
            self.step(told.unwrap_or_default())?;
        }
        let Shown::Screen(screen) = &self.shown else { return Ok(()) };
        let rate = self.rate.at(elapsed, load.requests());
        let in_flight = in_flight(&self.snapshot());
        let (act, steps) = (self.act.clone(), self.steps.clone());
        screen.draw(&self.heading, &View { elapsed, act, known, in_flight, load, rate, steps })
    }

    fn step(&mut self, what: String) -> Result<(), Error> {
        let step = Step { at: self.elapsed(), what };
        self.say(&line(&step))?;
        self.steps.push(step);
        Ok(())
    }

    /// A line, where there are lines.
    fn say(&self, line: &str) -> Result<(), Error> {
        match self.shown {
            Shown::Screen(_) => {}
            Shown::Lines => output::print(&format!("{line}\n"))?,
            Shown::Aside => eprintln!("{line}"),
        }
        Ok(())
    }
}
