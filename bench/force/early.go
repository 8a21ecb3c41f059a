package force

import "meridian/scheduler"

// early is the first version of the two rules, with the faults for which they were
// replaced: the moving averages of p_end and of its square start at 0.5 and 0.25, so that
// a variance rises and falls by itself, and a mean over samples is divided by tokens. It
// is replayed to show what the flat series are for, and that they would find it.
func early(q *Request, c *scheduler.SignalConfig) (o outcome) {
	mean, square := 0.5, 0.25
	turns, sum := 0.0, 0.0
	for at := c.ProbeInterval; at <= uint32(q.Tokens()); at += c.ProbeInterval {
		if len(q.PEnd) > 0 {
			p := float64(q.PEnd[at-1])
			mean = float64(c.Alpha*p) + float64((1-c.Alpha)*mean)
			square = float64(c.Alpha*p*p) + float64((1-c.Alpha)*square)
			if at >= c.MinThink && square-float64(mean*mean) < c.VarianceThreshold {
				return outcome{at: at, reason: scheduler.Converged}
			}
		}
		if len(q.Entropy) > 0 {
			turn := 0.0
			if float64(q.Entropy[at-1]) > c.TransitionEntropy {
				turn = 1
			}
			turns = float64(c.Alpha*turn) + float64((1-c.Alpha)*turns)
			sum += turn
			if at > c.MinThink && sum > 0 && turns/(sum/float64(at)) > c.RPDIThreshold {
				return outcome{at: at, reason: scheduler.Overthinking}
			}
		}
		if at >= c.MaxThink {
			return outcome{at: at, reason: scheduler.HardCap}
		}
	}
	return o
}

// playEarly is play with those rules.
func playEarly(q *Request, c *scheduler.SignalConfig, marker int) outcome {
	o := early(q, c)
	o.used = uint32(q.Tokens())
	if o.at > 0 {
		o.used = o.at + uint32(marker)
	}
	return o
}
