//! The progress of the demonstration: waits for conditions, and displays meanwhile what happens.

use std::time::{Duration, SystemTime};

use gateway::{Gateway, Snapshot, load::Totals};
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{
    load::{Addresses, Load},
    screen::Screen,
    view::{Rate, Step, View, doing, in_flight, line},
    watch::{Observed, ServiceWatch},
};
use crate::output::{self, Error, Format};

/// How often the display is refreshed. Changes of the API refresh it at once.
const REFRESH: Duration = Duration::from_millis(100);

/// How progress is displayed.
#[derive(Debug)]
enum Display {
    /// In place.
    Screen(Screen),
    /// Line by line.
    Lines,
    /// Line by line, beside an answer for programs.
    Aside,
}

/// The demonstration as it runs.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    heading: String,
    gateway: Gateway,
    service: ServiceWatch,
    load: Option<Load>,
    rate: Rate,
    phase: String,
    /// The message of the status that was displayed last.
    message: Option<String>,
    steps: Vec<Step>,
    display: Display,
}

impl Progress {
    pub(super) fn open(
        heading: String,
        client: &Client,
        gateway: Gateway,
        format: Format,
    ) -> Result<Self, Error> {
        let display = match format {
            Format::Json => Display::Aside,
            Format::Table => Screen::take()?.map_or(Display::Lines, Display::Screen),
        };
        let (service, rate, steps) = (ServiceWatch::follow(client), Rate::default(), Vec::new());
        let (began, phase) = (Instant::now(), String::new());
        let progress =
            Self { began, heading, gateway, service, load: None, rate, phase, message: None, steps, display };
        progress.say(&progress.heading)?;
        Ok(progress)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn known(&self) -> Observed {
        self.service.known()
    }

    pub(super) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// The counters of the gateway. The time of the snapshot is not used.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.gateway.snapshot(SystemTime::UNIX_EPOCH)
    }

    pub(super) fn totals(&self) -> Totals {
        self.load.as_ref().map(Load::totals).unwrap_or_default()
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Begins the next phase of the demonstration.
    pub(super) fn phase(&mut self, phase: &str) -> Result<(), Error> {
        phase.clone_into(&mut self.phase);
        self.step(phase.to_owned())?;
        self.show()
    }

    pub(super) fn start_load(&mut self, addresses: Addresses, per_second: u32) {
        self.load = Some(Load::start(addresses, per_second));
    }

    /// Nothing new is asked; waits for what was. False if that takes too long.
    pub(super) async fn stop_load(&mut self, limit: Duration) -> Result<bool, Error> {
        if let Some(load) = &self.load {
            load.stop();
        }
        let over = |progress: &mut Self| progress.load.as_mut().is_none_or(Load::is_over).then_some(());
        Ok(self.wait_until(limit, over).await?.is_some())
    }

    /// Looks and shows until `done` answers, or gives up.
    pub(super) async fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let give_up = Instant::now() + limit;
        let mut ticks = interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.show()?;
            if let Some(answer) = done(self) {
                return Ok(Some(answer));
            }
            tokio::select! {
                () = sleep_until(give_up) => return Ok(None),
                _ = ticks.tick() => {}
                () = self.service.changed() => {}
            }
        }
    }

    fn show(&mut self) -> Result<(), Error> {
        let (elapsed, load, known) = (self.elapsed(), self.totals(), self.known());
        let message = doing(&known.status);
        if message.is_some() && message != self.message {
            self.message.clone_from(&message);
            self.step(message.unwrap_or_default())?;
        }
        let Display::Screen(screen) = &self.display else { return Ok(()) };
        let rate = self.rate.at(elapsed, load.requests());
        let in_flight = in_flight(&self.snapshot());
        let (phase, steps) = (self.phase.clone(), self.steps.clone());
        screen.draw(&self.heading, &View { elapsed, phase, known, in_flight, load, rate, steps })
    }

    fn step(&mut self, what: String) -> Result<(), Error> {
        let step = Step { at: self.elapsed(), what };
        self.say(&line(&step))?;
        self.steps.push(step);
        Ok(())
    }

    /// A line, where there are lines.
    fn say(&self, line: &str) -> Result<(), Error> {
        match self.display {
            Display::Screen(_) => {}
            Display::Lines => output::print(&format!("{line}\n"))?,
            Display::Aside => eprintln!("{line}"),
        }
        Ok(())
    }
}
