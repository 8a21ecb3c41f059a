package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Defaults and bounds.
const (
	DefaultCall = 3 * time.Second
	MaxAnswer   = 4 << 20 // bytes of one answer; a list is read in parts that are below it

	keepAlive        = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	listPart         = 64 // keys of one answer; a value of the server's limit fits twice
)

// What calls fail with, besides their context's end.
var (
	ErrChanged     = errors.New("etcd: the key was changed meanwhile")
	ErrUnreachable = errors.New("etcd: no endpoint answers")
	ErrDenied      = errors.New("etcd: refused") // user, password or role
	ErrConfig      = errors.New("etcd: bad configuration")
	ErrTooLarge    = errors.New("etcd: too large")
)

// Config is how a cluster is reached.
type Config struct {
	Endpoints []string // HOST:PORT, or with http:// or https:// before it
	TLS       *tls.Config
	User      string
	Password  string
	Call      time.Duration // most of a call; 0: DefaultCall
}

// Client is a connection to a cluster. It may be used by several goroutines.
type Client struct {
	c    *clientv3.Client
	call time.Duration
}

// Value is what a key had.
type Value struct {
	Key  string
	B    []byte
	Rev  int64 // of its last change; 0: it is not there
	Made int64 // revision in which it came
}

// There says that the key exists.
func (v Value) There() bool { return v.Rev != 0 }

// Open makes a client. Only with a user it connects at once.
func Open(cfg Config) (*Client, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, fmt.Errorf("%w: no endpoint", ErrConfig)
	}
	if (cfg.User == "") != (cfg.Password == "") {
		return nil, fmt.Errorf("%w: user and password belong together", ErrConfig)
	}
	if cfg.Call <= 0 {
		cfg.Call = DefaultCall
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Username: cfg.User, Password: cfg.Password,
		DialTimeout: cfg.Call, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAliveTimeout,
		MaxCallRecvMsgSize: MaxAnswer, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, told(err)
	}
	return &Client{c: c, call: cfg.Call}, nil
}

// Close ends the client and its watches. Leases that are not closed lapse.
func (c *Client) Close() error {
	if err := c.c.Close(); !errors.Is(err, context.Canceled) { // of the client's own context, which Close ends
		return err
	}
	return nil
}

func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.call)
}

// Get is a key's value. One that is not there is no error.
func (c *Client) Get(ctx context.Context, key string) (Value, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.c.Get(ctx, key)
	if err != nil {
		return Value{}, told(err)
	}
	if len(r.Kvs) == 0 {
		return Value{Key: key}, nil
	}
	return valueOf(r.Kvs[0].Key, r.Kvs[0].Value, r.Kvs[0].ModRevision, r.Kvs[0].CreateRevision), nil
}

// List is what is below a prefix, in order, and the revision in which it was so. More
// than most keys is ErrTooLarge.
func (c *Client) List(ctx context.Context, prefix string, most int) ([]Value, int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var all []Value
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		r, err := c.c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(listPart), clientv3.WithRev(rev))
		if err != nil {
			return nil, 0, told(err)
		}
		rev = r.Header.Revision
		if len(all)+len(r.Kvs) > most {
			return nil, 0, fmt.Errorf("%w: more than %d keys below %q", ErrTooLarge, most, prefix)
		}
		for _, kv := range r.Kvs {
			all = append(all, valueOf(kv.Key, kv.Value, kv.ModRevision, kv.CreateRevision))
		}
		if !r.More {
			return all, rev, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// Put writes a key if its last change is that of was, or it is not there if was was
// not. ErrChanged: another one was faster, and nothing is written. With a lease the
// key ends when the lease does.
func (c *Client) Put(ctx context.Context, was Value, b []byte, lease *Lease) (Value, error) {
	var options []clientv3.OpOption
	if lease != nil {
		options = append(options, clientv3.WithLease(lease.id))
	}
	rev, err := c.change(ctx, was, clientv3.OpPut(was.Key, string(b), options...))
	return Value{Key: was.Key, B: b, Rev: rev}, err
}

// Delete removes a key if its last change is that of was.
func (c *Client) Delete(ctx context.Context, was Value) error {
	_, err := c.change(ctx, was, clientv3.OpDelete(was.Key))
	return err
}

func (c *Client) change(ctx context.Context, was Value, op clientv3.Op) (int64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(was.Key), "=", was.Rev)).Then(op).Commit()
	switch {
	case err != nil:
		return 0, told(err)
	case !r.Succeeded:
		return 0, fmt.Errorf("%w: %q", ErrChanged, was.Key)
	}
	return r.Header.Revision, nil
}

func valueOf(key, b []byte, rev, made int64) Value {
	return Value{Key: string(key), B: b, Rev: rev, Made: made}
}

// told adds to an error of the client what kind it is.
func told(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	kind := ErrUnreachable
	switch s, ok := status.FromError(err); {
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthNotEnabled):
		kind = ErrDenied
	case errors.Is(err, rpctypes.ErrRequestTooLarge), ok && s.Code() == codes.ResourceExhausted:
		kind = ErrTooLarge
	}
	return fmt.Errorf("%w: %w", kind, err)
}
