package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"meridian/adapters/mooncake/rpc"
	"meridian/adapters/mooncake/structpack"
)

// KnownVersion is the Mooncake release whose messages are spoken here. Masters say
// "2.0.0" whatever their messages are, so each function is tried.
const KnownVersion = "0.3.13.post1"

// Finding is how one function of the master differs from KnownVersion's. Err is nil
// where it does not, or as far as could be seen: see Unsure.
type Finding struct {
	Function string
	Err      error
	Unsure   bool // the connection failed
}

// Report is what a probe found.
type Report struct {
	Says     string // the master's own version
	Findings []Finding
}

// Fits reports whether all functions are those that are known.
func (r Report) Fits() bool {
	for _, f := range r.Findings {
		if f.Err != nil {
			return false
		}
	}
	return true
}

// String names the differences, a line each.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the master says version %.40q; functions compared with %s:", r.Says, KnownVersion)
	for _, f := range r.Findings {
		switch {
		case f.Err == nil:
			fmt.Fprintf(&b, "\n%s: the same", f.Function)
		case f.Unsure:
			fmt.Fprintf(&b, "\n%s: not known: %v", f.Function, f.Err)
		default:
			fmt.Fprintf(&b, "\n%s: differs: %v", f.Function, f.Err)
		}
	}
	return b.String()
}

// probeKey is a key that nobody puts: no function that is tried changes anything.
const probeKey = "meridian/probe/no such object"

// Probe tries the functions that client and node use, with arguments that change
// nothing: a key and ids that do not exist, an object of no bytes. An error means
// that there is no master to ask.
func (c *Client) Probe(ctx context.Context) (Report, error) {
	ready, err := fnServiceReady.Call(ctx, c.rpc, rpc.NoArguments{})
	var conn *rpc.ConnError
	if errors.As(err, &conn) {
		return Report{}, failed("probe", "ServiceReady", err, 0)
	}
	r := Report{Says: ready.Value}
	r.add(fnServiceReady.Name, err)
	id := NewUUID()
	try(ctx, c, &r, fnPing, id)
	try(ctx, c, &r, fnExist, keyQuery{Key: probeKey, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchExist, keys{Keys: []string{probeKey}, Tenant: c.tenant})
	try(ctx, c, &r, fnReplicas, keyQuery{Key: probeKey, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchReplicas, keys{Keys: []string{probeKey}, Tenant: c.tenant})
	config := replicateConfig{Replicas: 1}
	try(ctx, c, &r, fnPutStart, putStart{Client: id, Key: probeKey, Config: config, Tenant: c.tenant})
	try(ctx, c, &r, fnPutEnd, putEnd{Client: id, Meta: objectMeta{Key: probeKey}, Which: allReplicas, Tenant: c.tenant})
	try(ctx, c, &r, fnPutRevoke, putRevoke{Client: id, Key: probeKey, Which: allReplicas, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchPutStart, batchPutStart{Client: id, Config: config, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchPutEnd, batchPutEnd{Client: id, Which: allReplicas, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchPutRevoke, batchPutRevoke{Client: id, Which: allReplicas, Tenant: c.tenant})
	try(ctx, c, &r, fnRemove, remove{Key: probeKey, Tenant: c.tenant})
	try(ctx, c, &r, fnBatchRemove, batchRemove{Keys: []string{probeKey}, Tenant: c.tenant})
	try(ctx, c, &r, fnUnmount, unmount{Segment: id, Client: id})
	try(ctx, c, &r, fnGracefulUnmount, gracefulUnmount{Segment: id, Client: id})
	try(ctx, c, &r, fnSegmentStatus, id)
	return r, nil
}

// try calls a function; what it answers does not matter, only that it can be read.
func try[Q, A any](ctx context.Context, c *Client, r *Report, m *rpc.Method[Q, A], q Q) {
	_, err := m.Call(ctx, c.rpc, q)
	r.add(m.Name, err)
}

func (r *Report) add(function string, err error) {
	var conn *rpc.ConnError
	var refused *rpc.Error
	var answer *rpc.AnswerError
	var code *structpack.CodeError
	f := Finding{Function: function, Err: err, Unsure: errors.As(err, &conn)}
	switch {
	case errors.As(err, &refused) && refused.Code == rpc.CodeUnknown:
		f.Err = fmt.Errorf("it is not there: %w", err)
	case errors.As(err, &refused) && refused.Code == rpc.CodeBadArguments:
		f.Err = fmt.Errorf("it has other arguments: %w", err)
	case errors.As(err, &answer) && errors.As(err, &code):
		f.Err = fmt.Errorf("it answers another type: %w", err)
	}
	r.Findings = append(r.Findings, f)
}
