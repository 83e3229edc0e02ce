package main

// random is SplitMix64. It is written out here so that the fixtures depend on
// the seed only and not on a library's choice of generator.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// below returns a number in [0, n).
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// between returns a number in [low, high].
func (r *random) between(low, high int) int { return low + r.below(high-low+1) }

// chance is true in the given percentage of calls.
func (r *random) chance(percent int) bool { return r.below(100) < percent }

func pick[T any](r *random, pool []T) T { return pool[r.below(len(pool))] }

func shuffle[T any](r *random, items []T) {
	for i := len(items) - 1; i > 0; i-- {
		j := r.below(i + 1)
		items[i], items[j] = items[j], items[i]
	}
}

// sample returns n distinct members of the pool in random order.
func sample[T any](r *random, pool []T, n int) []T {
	items := append([]T(nil), pool...)
	shuffle(r, items)
	return items[:min(n, len(items))]
}

// some returns each member of the pool with the given chance, in pool order.
func some[T any](r *random, pool []T, percent int) []T {
	var items []T
	for _, item := range pool {
		if r.chance(percent) {
			items = append(items, item)
		}
	}
	return items
}
