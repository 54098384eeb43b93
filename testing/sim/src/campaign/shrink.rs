//! Makes a failing seed's faults few: parts of them are left out as long as it fails without (Zeller's delta debugging, complements only).

/// The fewest of `faults` that were found with which `fails` still answers true; `tries` bounds how often it is asked.
pub(crate) fn shrink(faults: Vec<u32>, mut tries: u32, mut fails: impl FnMut(&[u32]) -> bool) -> Vec<u32> {
    let mut kept = faults;
    let mut parts = 2;
    while !kept.is_empty() && tries > 0 {
        let size = kept.len().div_ceil(parts);
        let mut smaller = None;
        for from in (0..kept.len()).step_by(size) {
            if tries == 0 {
                break;
            }
            tries -= 1;
            let to = (from + size).min(kept.len());
            let without: Vec<u32> = kept[..from].iter().chain(&kept[to..]).copied().collect();
            if fails(&without) {
                smaller = Some(without);
                break;
            }
        }
        match smaller {
            Some(without) => {
                kept = without;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(kept.len()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failure_needs_is_left() {
        let all: Vec<u32> = (0..47).collect();
        let mut asked = 0;
        let few = shrink(all.clone(), 1_000, |faults| {
            asked += 1;
            faults.contains(&3) && faults.contains(&31)
        });
        assert_eq!(few, [3, 31]);
        assert!(asked < 60, "{asked}");
        assert_eq!(shrink(all.clone(), 1_000, |_| true), [0; 0]);
        assert_eq!(shrink(vec![9], 1_000, |_| true), [0; 0]);
        assert_eq!(shrink(all.clone(), 1_000, |faults| faults.len() == 47), all);
    }

    #[test]
    fn it_is_asked_no_more_often_than_allowed() {
        let mut asked = 0;
        let left = shrink((0..100).collect(), 10, |faults| {
            asked += 1;
            faults.contains(&77)
        });
        assert!(asked <= 10 && left.contains(&77), "{asked} {left:?}");
    }
}
