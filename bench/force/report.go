package force

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Report is what a run found.
type Report struct {
	Rules         []Rule  `json:"rules"`
	FalseTriggers int     `json:"false_triggers"` // of signals, on the flat series, with these rules
	Sets          []Set   `json:"sets"`
	Grid          []Point `json:"grid"`
}

// Rule is a threshold.
type Rule struct {
	Threshold string  `json:"threshold"`
	Value     float64 `json:"value"`
}

// Set is a recording and what the choices of signals make of it. Mean and P95 are of
// thinking tokens a request, the end marker included, without forcing.
type Set struct {
	Header
	Flat   bool    `json:"flat"` // any signal that forces is wrong
	Tokens int     `json:"tokens"`
	Marker int     `json:"ended_by_marker"`
	EOS    int     `json:"ended_by_eos"`
	Cut    int     `json:"cut"` // how long these would have thought is not known
	Mean   float64 `json:"mean"`
	P95    float64 `json:"p95"`
	Arms   []Arm   `json:"arms"`
}

// Arm is one choice of signals.
type Arm struct {
	Name         string    `json:"signals"`
	Forced       int       `json:"forced"`
	Converged    int       `json:"converged"`
	Overthinking int       `json:"overthinking"`
	HardCap      int       `json:"hard_cap"`
	Mean         float64   `json:"mean"`
	P95          float64   `json:"p95"`
	SavedMean    float64   `json:"saved_mean"` // share of the mean without forcing
	SavedP95     float64   `json:"saved_p95"`
	First        uint32    `json:"first_trigger"` // thinking tokens; 0: none
	Median       uint32    `json:"median_trigger"`
	Triggers     []Trigger `json:"triggers"`
}

// Trigger is where a request was forced.
type Trigger struct {
	ID     string `json:"id"`
	At     uint32 `json:"at"` // thinking tokens
	Of     uint32 `json:"of"` // that the request has in the recording
	Reason string `json:"reason"`
}

// Rows is the table for people. Signals that change nothing, compared with the cap
// alone, have no row unless they are all of them.
func (r Report) Rows() (head []string, rows [][]string) {
	head = []string{"recording", "signals", "forced", "converged", "overthinking", "hard_cap", "mean", "p95", "first", "median"}
	for i := range r.Sets {
		s := &r.Sets[i]
		rows = append(rows, []string{s.label(), "no forcing", "-", "-", "-", "-", tokens(s.Mean), tokens(s.P95), "-", "-"})
		n, still := s.Requests, Arm{}
		for _, a := range s.Arms {
			if a.Name == capArm {
				still = a
			}
		}
		for i, a := range s.Arms {
			if i > 0 && a.same(&still) {
				continue
			}
			rows = append(rows, []string{"", a.Name, percent(ratio(a.Forced, n)), percent(ratio(a.Converged, n)), percent(ratio(a.Overthinking, n)), percent(ratio(a.HardCap, n)),
				less(a.Mean, a.SavedMean), less(a.P95, a.SavedP95), position(a.First), position(a.Median)})
		}
	}
	return head, rows
}

// same says whether two choices of signals force the same.
func (a *Arm) same(b *Arm) bool { return slices.Equal(a.Triggers, b.Triggers) }

// GridRows is the table of thresholds: for each set the share of requests that were
// forced, and by how much that changes the mean of thinking tokens.
func (r Report) GridRows() (head []string, rows [][]string) {
	head = []string{"base", "threshold", "value"}
	for i := range r.Sets {
		if !r.Sets[i].Flat {
			head = append(head, r.Sets[i].Name)
		}
	}
	head = append(head, "false on flat")
	for _, p := range r.Grid {
		value := strconv.FormatFloat(p.Value, 'g', -1, 64)
		if p.Threshold == "none moved" {
			value = "-"
		}
		row := []string{p.Base, p.Threshold, value}
		for i, s := range p.Sets {
			switch {
			case r.Sets[i].Flat:
			case s.Forced == 0:
				row = append(row, "0")
			default:
				row = append(row, fmt.Sprintf("%s, %+.1f %%", percent(s.OfRequests), -100*s.SavedMean))
			}
		}
		rows = append(rows, append(row, strconv.Itoa(p.FalseTriggers)))
	}
	return head, rows
}

// label is a set's name and what it is.
func (s *Set) label() string {
	if s.Kind == Synthetic {
		return s.Name + " (synthetic)"
	}
	return s.Name
}

// Provenance says of each set where it comes from.
func (r Report) Provenance() []string {
	var all []string
	for i := range r.Sets {
		s := &r.Sets[i]
		if of, ok := strings.CutSuffix(s.Name, eosSet); ok && i > 0 && r.Sets[i-1].Name == of {
			all = append(all, fmt.Sprintf("%s: the same, with the probability of the end of the sequence in place of p_end.", s.Name))
			continue
		}
		text := fmt.Sprintf("%s: %s; %d requests, %d thinking tokens; ended by the marker %d, by the end of the sequence %d, cut %d. %s.", s.Name, s.Kind, s.Requests, s.Tokens, s.Marker, s.EOS, s.Cut, s.Source)
		for _, more := range []string{s.Model, s.Engine, s.Sampling, s.NotThinking} {
			if more != "" {
				text = strings.TrimSuffix(text, ".") + "; " + more + "."
			}
		}
		if s.Top > 0 {
			text += fmt.Sprintf(" Entropy and probabilities are lower bounds, of the %d most likely of %d tokens, which had %v of the probability or more.", s.Top, s.Vocabulary, s.LeastMass)
		}
		all = append(all, text)
	}
	return all
}

// Note says what the figures are.
func (r Report) Note() string {
	lines := []string{
		"Thinking tokens a request, and in brackets the change by forcing. A request that was cut might have thought for longer: what forcing saves there is at least this. Signals without a row force what the cap alone forces. Nothing here says what a shorter thinking does to an answer.",
		fmt.Sprintf("False triggers on flat series: %d. First rules are those that were replaced: what they force on flat series is wrong.", r.FalseTriggers),
	}
	return strings.Join(append(lines, r.Provenance()...), "\n")
}

// Markdown is the whole report for people.
func (r Report) Markdown() string {
	var b strings.Builder
	b.WriteString("# Forcing the end of thinking\n\n## Rules\n\n")
	var rules [][]string
	for _, x := range r.Rules {
		rules = append(rules, []string{"`" + x.Threshold + "`", strconv.FormatFloat(x.Value, 'g', -1, 64)})
	}
	markdown(&b, []string{"threshold", "value"}, rules)
	b.WriteString("\n## Recordings\n\n")
	for _, p := range r.Provenance() {
		b.WriteString("- " + plain(p) + "\n")
	}
	b.WriteString("\n## What is forced\n\n")
	head, rows := r.Rows()
	markdown(&b, head, rows)
	fmt.Fprintf(&b, "\nFalse triggers on flat series: %d.\n", r.FalseTriggers)
	b.WriteString("\n## Flat series, by the first rules\n\n")
	var faults [][]string
	for i := range r.Sets {
		if s := &r.Sets[i]; s.Flat {
			for _, t := range s.Arms[len(s.Arms)-1].Triggers {
				faults = append(faults, []string{t.ID, t.Reason, strconv.Itoa(int(t.At))})
			}
		}
	}
	markdown(&b, []string{"series", "forced as", "at token"}, faults)
	b.WriteString("\n## Sensitivity\n\nOne threshold moved, all signals. Share of requests that were forced, and the change of mean thinking tokens; signals that forced flat series.\n\n")
	head, rows = r.GridRows()
	markdown(&b, head, rows)
	return b.String()
}

func markdown(b *strings.Builder, head []string, rows [][]string) {
	for i, row := range append([][]string{head}, rows...) {
		for j := range row {
			row[j] = plain(row[j])
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
		}
	}
}

// plain keeps what a recording says from being read as markup.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ", "\r", " ").Replace(s)
}

func tokens(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func less(v, saved float64) string {
	if saved == 0 {
		return tokens(v)
	}
	return fmt.Sprintf("%s (%+.1f %%)", tokens(v), -100*saved)
}

func percent(v float64) string { return strconv.FormatFloat(math.Round(1000*v)/10, 'f', -1, 64) + " %" }

func position(at uint32) string {
	if at == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(at), 10)
}
