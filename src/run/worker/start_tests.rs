//! Tests of starting and ending workers.

use std::time::Duration;

use super::handle::Patience;
use super::protocol::{Reply, Request};
use super::start::{Launch, Ready, StartError, start};
use super::testing::{GOING_ON, launch, ready, worker, worker_that_takes};
use hardware::{ErrorKind, HardwareError};
use model::measurement::{CudaDevice, DriverFacts, Hidden};
use model::units::Bytes;

#[test]
fn a_worker_has_the_more_time_to_die_the_more_gpus_it_has() {
    // The driver takes one context down after the other; with so many GPUs that takes longer than the base.
    let patience =
        Patience { base: Duration::from_millis(100), per_gpu: Duration::from_millis(100) };
    for (gpus, stuck) in [(2, true), (8, false)] {
        let mut hanging =
            worker_that_takes(100, Some(Duration::from_millis(500)), patience, Box::new(|_| None));
        let selections = launch(gpus).selections;
        hanging
            .send(&Request::Open { selections, memory_limit: Bytes(1 << 30), one_by_one: false })
            .unwrap();
        hanging.end();
        assert_eq!(hanging.stuck().is_some(), stuck, "{gpus} GPUs");
    }
}

/// Starts a worker for two of four GPUs with this answer, which depends on whether only they are shown to it. Also
/// returns the masks of all workers that were started.
fn masked(answer: fn(bool) -> Reply) -> (Result<Ready, StartError>, Vec<Option<String>>) {
    let mut launch = Launch { there: 4, ..launch(2) };
    let mut masks = Vec::new();
    let mut spawn = |launch: &Launch| {
        let mask = launch.mask();
        masks.push(mask.clone());
        Ok(worker(1, true, Box::new(move |_| Some(vec![answer(mask.is_some())]))))
    };
    let first = spawn(&launch);
    let ready = start(first, &mut launch, &GOING_ON, &mut spawn);
    (ready, masks)
}

#[test]
fn what_cuda_does_not_show_under_a_mask_is_asked_for_without_one() {
    let both = Some("GPU-0,GPU-1".to_owned());
    let (ready, masks) = masked(|_| ready());
    assert!(ready.is_ok());
    assert_eq!(masks, std::slice::from_ref(&both));
    // A GPU that CUDA does not show hides all after it, and the reason is not the mask.
    let answer: fn(bool) -> Reply = |masked| {
        let hidden = if masked { Hidden::Masked } else { Hidden::Unexplained };
        let device = CudaDevice { index: 0, hidden: Some(hidden), ..CudaDevice::default() };
        let facts = DriverFacts { devices: vec![device], ..DriverFacts::default() };
        Reply::Ready { facts, floor_seconds: 0.0 }
    };
    let (ready, masks) = self::masked(answer);
    assert_eq!(masks, [both.clone(), None]);
    assert_eq!(ready.ok().unwrap().facts.devices[0].hidden, Some(Hidden::Unexplained));
    let refuses: fn(bool) -> Reply = |_| {
        let error =
            HardwareError::new(ErrorKind::NoDriver, "cuInit: no device (100)").with_code(100);
        Reply::NoDriver { error }
    };
    let (refused, masks) = self::masked(refuses);
    assert!(refused.is_err());
    assert_eq!(masks, [both, None], "and not again and again");
}
