//! Random numbers from the key of a record. They are the same on every machine.

/// Random numbers from a key.
pub struct Draws(u64);

impl Draws {
    /// The numbers of a key.
    pub fn new(key: u64) -> Self {
        Self(key)
    }

    /// splitmix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A whole number from 0 to one before the end.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number within a range.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        low + (high - low) * ((self.next() >> 11) as f64 / STEPS)
    }
}

/// The natural logarithm of a positive number.
pub fn log(mut value: f64) -> f64 {
    let mut halvings = 0.0;
    while value > 1.5 {
        value /= 2.0;
        halvings += 1.0;
    }
    while value < 0.75 {
        value *= 2.0;
        halvings -= 1.0;
    }
    let part = (value - 1.0) / (value + 1.0);
    let square = part * part;
    let sum = (0..16).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * part * sum + halvings * std::f64::consts::LN_2
}

/// e to the power of a number.
pub fn exp(power: f64) -> f64 {
    // After halving it eight times, a few terms are enough.
    let small = power / 256.0;
    let sum = (1..14).rev().fold(1.0, |sum, n| 1.0 + sum * small / f64::from(n));
    (0..8).fold(sum, |value, _| value * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_log_are_those_of_mathematics() {
        for step in 1..400 {
            let value = f64::from(step) / 16.0;
            assert!((log(value) - value.ln()).abs() < 1e-14, "{value}");
            assert!((exp(value / 8.0) / (value / 8.0).exp() - 1.0).abs() < 1e-13, "{value}");
        }
    }
}
