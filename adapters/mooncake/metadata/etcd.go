package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"meridian/internal/etcd"
	"meridian/wire"
)

// leaseTime is how long what a node published stays in etcd when the node is gone. It
// is the node's own word that ends, never another node's: stock engines have no lease.
const leaseTime = 30 * time.Second

// etcdStore keeps values in etcd, under a lease of this process.
type etcdStore struct {
	client *etcd.Client

	mu    sync.Mutex
	lease *etcd.Lease // nil until something is published
}

// newEtcd takes endpoints as engines do: separated by ; or by a comma.
func newEtcd(c Config, endpoints string) (*etcdStore, error) {
	list := strings.FieldsFunc(endpoints, func(r rune) bool { return r == ';' || r == ',' })
	client, err := etcd.Open(etcd.Config{Endpoints: list, TLS: c.TLS, User: c.User, Password: c.Password})
	if err != nil {
		return nil, coded(err)
	}
	return &etcdStore{client: client}, nil
}

func (s *etcdStore) get(ctx context.Context, k Key) (value, error) {
	v, err := s.client.Get(ctx, k.String())
	if err != nil {
		return value{}, coded(err)
	}
	return value{body: v.B, there: v.There(), rev: v.Rev}, nil
}

// put writes what is there already too, since it may be under a lease that has lapsed.
// Engines end a value with a newline.
func (s *etcdStore) put(ctx context.Context, k Key, body []byte, _ uint64, was value) error {
	lease, err := s.leased(ctx)
	if err != nil {
		return err
	}
	_, err = s.client.Put(ctx, etcd.Value{Key: k.String(), Rev: was.rev}, append(bytes.TrimRight(body, "\n"), '\n'), lease)
	return coded(err)
}

func (s *etcdStore) remove(ctx context.Context, k Key, _ uint64, was value) error {
	return coded(s.client.Delete(ctx, etcd.Value{Key: k.String(), Rev: was.rev}))
}

// leased is a lease that lives.
func (s *etcdStore) leased(ctx context.Context) (*etcd.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		select {
		case <-s.lease.Lost():
		default:
			return s.lease, nil
		}
	}
	lease, err := s.client.Lease(ctx, leaseTime)
	if err != nil {
		return nil, coded(err)
	}
	s.lease = lease
	return lease, nil
}

// close ends the lease, and with it what was published.
func (s *etcdStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.lease != nil {
		err = coded(s.lease.Close(context.Background()))
	}
	return errors.Join(err, s.client.Close())
}

// coded adds the wire code to an error of etcd.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := wire.CodeUnreachable
	switch {
	case errors.Is(err, context.Canceled):
		code = wire.CodeCancelled
	case errors.Is(err, etcd.ErrChanged):
		code = wire.CodeExists
	case errors.Is(err, etcd.ErrDenied):
		code = wire.CodeDenied
	case errors.Is(err, etcd.ErrConfig):
		code = wire.CodeConfig
	case errors.Is(err, etcd.ErrTooLarge):
		code = wire.CodeTooLarge
	}
	return fmt.Errorf("%w: %w", code, err)
}
