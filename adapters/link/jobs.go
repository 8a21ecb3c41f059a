package link

import (
	"slices"

	"meridian/adapters/link/internal/core"
)

// here says whether the reader does jobs itself, and no worker has to be woken:
// hashes that are short; those of a read after which no body is due, or the socket
// has nothing more; and all of them when every processor has something to do
// already. What was read last is in this processor's cache, and the socket's buffer
// takes what comes meanwhile. Else the worker hashes while the reader reads on.
func (l *lane) here(jobs []core.Job, more bool) bool {
	if !core.OnlyHashes(jobs) {
		return false
	}
	bytes := 0
	for i := range jobs {
		bytes += jobs[i].Bytes()
	}
	if bytes <= quickHash || !more || int(l.ses.node.hot.Load()) >= l.ses.node.procs {
		return true
	}
	return l.in.drained()
}

// work does jobs, and those that come of them: the reader only hashes, since room may
// take long to make.
func (l *lane) work(jobs []core.Job, reader bool) {
	s := l.ses
	for jobs = l.apart(jobs); len(jobs) > 0; jobs = l.apart(jobs) {
		if reader && !core.OnlyHashes(jobs) {
			l.hand(jobs)
			return
		}
		for i := range jobs {
			jobs[i].Run()
		}
		s.mu.Lock()
		s.core.Finish(s.now(), jobs)
		jobs = l.core.TakeJobs()
		s.unlock()
	}
}

// apart takes out the jobs that wait for others, and does each in a goroutine of its own:
// a session has few of them.
func (l *lane) apart(jobs []core.Job) []core.Job {
	if !slices.ContainsFunc(jobs, func(j core.Job) bool { return j.Waits() }) {
		return jobs
	}
	s := l.ses
	var rest []core.Job
	for _, j := range jobs {
		if !j.Waits() {
			rest = append(rest, j)
			continue
		}
		l.gone.Go(func() {
			one := []core.Job{j}
			one[0].Run()
			s.mu.Lock()
			s.core.Finish(s.now(), one)
			s.unlock()
		})
	}
	return rest
}

// hand gives jobs to the worker, which starts with the first.
func (l *lane) hand(jobs []core.Job) {
	if l.jobs == nil {
		l.jobs = make(chan []core.Job, jobQueue)
		l.gone.Add(1)
		go l.worker()
	}
	l.busy.Add(1)
	l.jobs <- jobs
}

func (l *lane) worker() {
	defer l.gone.Done()
	for jobs := range l.jobs {
		l.ses.node.hot.Add(1)
		l.work(jobs, false)
		l.ses.node.hot.Add(-1)
		l.busy.Add(-1)
	}
}
