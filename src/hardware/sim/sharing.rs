//! Sharing of hops among flows: max-min fair, by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).
//! All flows grow alike until a hop is full or a flow reaches its own cap. Those flows stay, the others grow on.

/// A flow that wants a share.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// Indices of the hops that it passes.
    pub hops: &'a [usize],
    /// Its highest possible rate, GB/s.
    pub cap: f64,
}

/// Returns the rate of every flow, GB/s, for these capacities of the hops.
pub fn max_min(capacities: &[f64], flows: &[Demand<'_>]) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut growing = vec![true; flows.len()];
    let mut left = capacities.to_vec();
    while growing.contains(&true) {
        let mut users = vec![0_u32; capacities.len()];
        for (flow, _) in flows.iter().zip(&growing).filter(|(_, growing)| **growing) {
            for &hop in flow.hops {
                users[hop] += 1;
            }
        }
        let full = |hop: usize, left: &[f64]| left[hop] / f64::from(users[hop].max(1));
        let mut step = f64::INFINITY;
        for (index, flow) in flows.iter().enumerate().filter(|(index, _)| growing[*index]) {
            let room = flow
                .hops
                .iter()
                .map(|&hop| full(hop, &left))
                .fold(flow.cap - rates[index], f64::min);
            step = step.min(room);
        }
        let step = step.max(0.0);
        for (index, flow) in flows.iter().enumerate().filter(|(index, _)| growing[*index]) {
            rates[index] += step;
            for &hop in flow.hops {
                left[hop] -= step;
            }
        }
        // Compare relatively, so that rounding cannot keep a full hop from counting as full.
        let is_full =
            |hop: usize| capacities[hop].is_finite() && left[hop] <= 1e-9 * capacities[hop];
        for (index, flow) in flows.iter().enumerate() {
            if rates[index] >= flow.cap * (1.0 - 1e-9) || flow.hops.iter().any(|&hop| is_full(hop))
            {
                growing[index] = false;
            }
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(capacities: &[f64], flows: &[(&[usize], f64)]) -> Vec<f64> {
        let flows: Vec<_> = flows.iter().map(|&(hops, cap)| Demand { hops, cap }).collect();
        max_min(capacities, &flows).iter().map(|rate| (rate * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn what_one_flow_leaves_the_others_take() {
        assert_eq!(shares(&[10.0], &[(&[0], 2.0), (&[0], 99.0), (&[0], 99.0)]), [2.0, 4.0, 4.0]);
        // The textbook case: a long flow over two hops, each with a short one.
        assert_eq!(
            shares(&[10.0, 4.0], &[(&[0, 1], 99.0), (&[0], 99.0), (&[1], 99.0)]),
            [2.0, 8.0, 2.0]
        );
    }

    #[test]
    fn a_flow_without_hops_has_its_cap() {
        assert_eq!(shares(&[], &[(&[], 3.0)]), [3.0]);
    }
}
