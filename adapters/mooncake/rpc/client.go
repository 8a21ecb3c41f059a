package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"meridian/adapters/mooncake/structpack"
)

// Defaults and limits.
const (
	DefaultTimeout   = 5 * time.Second
	DefaultMaxAnswer = 16 << 20
	DefaultPending   = 128

	// MaxRequest bounds the arguments of a call.
	MaxRequest = 16 << 20

	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Config says whom a client calls. Where is asked before each attempt to connect,
// and returns the addresses, host:port, in the order in which they are tried.
type Config struct {
	Where     func(ctx context.Context) ([]string, error)
	Timeout   time.Duration // of a call, and of connecting to one address
	MaxAnswer uint32        // bytes of one answer
	Pending   int           // calls at a time; more wait
}

// At is a Where of fixed addresses.
func At(addresses ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return addresses, nil }
}

// Client calls functions of one server. It may be used by several goroutines.
type Client struct {
	config  Config
	now     func() time.Time
	places  chan struct{} // a value for each call under way
	dialing chan struct{} // held by who connects; guards pause, until and failed
	pause   time.Duration
	until   time.Time // no attempt before
	failed  error     // of the last attempt

	mu      sync.Mutex
	current *conn
	closed  bool
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	readers sync.WaitGroup
}

// New returns a client, which is not connected yet.
func New(c Config) *Client {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxAnswer == 0 {
		c.MaxAnswer = DefaultMaxAnswer
	}
	if c.Pending <= 0 {
		c.Pending = DefaultPending
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Client{
		config: c, now: time.Now, ctx: ctx, stop: stop,
		places: make(chan struct{}, c.Pending), dialing: make(chan struct{}, 1),
	}
}

// Address is the server's that the client is connected to, or "".
func (c *Client) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil || c.current.dead() {
		return ""
	}
	return c.current.address
}

// Close ends calls under way and waits for the connection's end.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	current := c.current
	c.mu.Unlock()
	c.stop()
	if current != nil {
		current.fail(ErrClosed)
	}
	c.readers.Wait()
	return nil
}

// call sends a request and returns the body of its answer.
func (c *Client) call(ctx context.Context, function string, id uint32, body []byte) ([]byte, error) {
	if len(body) > MaxRequest {
		return nil, fmt.Errorf("%s: %d bytes of arguments, the limit is %d", function, len(body), MaxRequest)
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return nil, &ConnError{Function: function, Err: fmt.Errorf("%d calls are under way: %w", c.config.Pending, ctx.Err())}
	case <-c.ctx.Done():
		return nil, &ConnError{Function: function, Err: ErrClosed}
	}
	conn, err := c.connection(ctx)
	if err != nil {
		return nil, &ConnError{Function: function, Err: err}
	}
	r, sent, err := conn.exchange(ctx, id, body)
	if err != nil {
		return nil, &ConnError{Function: function, Address: conn.address, Sent: sent, Err: err}
	}
	if r.code != 0 {
		return nil, &Error{Function: function, Code: Code(r.code), Text: errorText(Code(r.code), r.body)}
	}
	return r.body, nil
}

var (
	textCodec   = structpack.Of[string]()
	customCodec = structpack.Tuple[struct {
		Code uint16
		Text string
	}]()
)

// errorText is the server's words, as far as they can be read.
func errorText(code Code, body []byte) string {
	if code == CodeCustom {
		if v, err := customCodec.Decode(body); err == nil {
			return fmt.Sprintf("%d: %s", v.Code, v.Text)
		}
	}
	s, err := textCodec.Decode(body)
	if err != nil {
		return ""
	}
	return s
}

// connection returns the connection, and connects where there is none.
func (c *Client) connection(ctx context.Context) (*conn, error) {
	if conn, err := c.live(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a connection: %w", ctx.Err())
	case <-c.ctx.Done():
		return nil, ErrClosed
	}
	if conn, err := c.live(); conn != nil || err != nil {
		return conn, err
	}
	if now := c.now(); now.Before(c.until) {
		return nil, fmt.Errorf("the next attempt to connect is in %v; the last one: %w", c.until.Sub(now).Round(time.Millisecond), c.failed)
	}
	conn, err := c.connect(ctx)
	if err != nil {
		c.pause = min(max(2*c.pause, firstPause), lastPause)
		c.until, c.failed = c.now().Add(c.pause), err
		return nil, err
	}
	c.pause = 0
	return conn, nil
}

// live returns the connection if there is one that has not failed.
func (c *Client) live() (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.current == nil || c.current.dead() {
		return nil, nil
	}
	return c.current, nil
}

// connect tries each address once.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	addresses, err := c.config.Where(ctx)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, address := range addresses {
		d := net.Dialer{Timeout: c.config.Timeout / time.Duration(len(addresses))}
		nc, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		return c.adopt(nc, address)
	}
	if len(failed) == 0 {
		return nil, errors.New("there is no address to connect to")
	}
	return nil, errors.Join(failed...)
}

// adopt makes a new connection the client's.
func (c *Client) adopt(nc net.Conn, address string) (*conn, error) {
	conn := newConn(nc, address, c.config.MaxAnswer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.Join(ErrClosed, nc.Close())
	}
	c.current = conn
	c.readers.Add(1)
	go func() {
		defer c.readers.Done()
		conn.read()
	}()
	return conn, nil
}
