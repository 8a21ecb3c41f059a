package agent

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"meridian/agent/adminpb"
	"meridian/fabric"
	"meridian/wire"
)

// The bounds of ReadObject. An object is in the memory of the daemon as a whole, beside
// the arena, until it is sent: its CRC-64 is known only after its last byte.
const (
	maxObject      = 64 << 20 // bytes
	maxObjectKey   = 4096     // bytes
	objectPart     = 256 << 10
	objectsAtATime = 2
	objectTimeout  = 30 * time.Second // of the read, and again of what is sent
)

// What became of a question for an object: it was sent to its end, refused before it was
// read, or neither.
const (
	objectOK      = "ok"
	objectRefused = "refused"
	objectFailed  = "failed"
)

// What proved the bytes of an object.
const (
	unverified = "unverified"
	byCRC64    = "crc64"
)

// objectReader reads objects of foreign clients for the admin API.
type objectReader struct {
	places chan struct{} // one entry for each object that is read or sent now
	within time.Duration
}

func newObjectReader() *objectReader {
	return &objectReader{places: make(chan struct{}, objectsAtATime), within: objectTimeout}
}

// ReadObject sends an object of a foreign client in pieces.
func (s *adminServer) ReadObject(req *adminpb.ReadObjectRequest, out grpc.ServerStreamingServer[adminpb.ObjectPart]) error {
	f, err := s.objects(req.Fabric)
	if err != nil {
		return err
	}
	proof, outcome, err := s.reader.serve(f, req, out)
	s.a.metrics.objects.WithLabelValues(req.Fabric, proof, outcome).Inc()
	if err != nil {
		return adminError(err)
	}
	return nil
}

// objects is the fabric of a name, which has objects.
func (s *adminServer) objects(name string) (fabric.Objects, error) {
	var names []string
	known := false
	for have, f := range s.a.whole {
		known = known || have == name
		if o, ok := f.(fabric.Objects); ok {
			if have == name {
				return o, nil
			}
			names = append(names, have)
		}
	}
	if known {
		return nil, adminError(fmt.Errorf("fabric %s has no objects of other clients: %w", name, wire.CodeUnsupported))
	}
	return nil, unknownName("fabric that has objects", name, names)
}

func (r *objectReader) serve(f fabric.Objects, req *adminpb.ReadObjectRequest, out grpc.ServerStreamingServer[adminpb.ObjectPart]) (proof, outcome string, err error) {
	if n := len(req.Key); n > maxObjectKey {
		return unverified, objectRefused, fmt.Errorf("a key of %d bytes, the limit is %d: %w", n, maxObjectKey, wire.CodeInvalid)
	}
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	default:
		return unverified, objectRefused, fmt.Errorf("%d objects are read already, the limit is %d: ask again: %w", objectsAtATime, objectsAtATime, wire.CodeBusy)
	}
	ctx, cancel := context.WithTimeout(out.Context(), r.within)
	defer cancel()
	o, err := f.Object(ctx, req.Key, maxObject)
	switch wire.CodeOf(err) {
	case wire.CodeOK:
	case wire.CodeChecksum:
		return byCRC64, objectFailed, err
	case wire.CodeDenied, wire.CodeTooLarge, wire.CodeInvalid:
		return unverified, objectRefused, err
	default:
		return unverified, objectFailed, err
	}
	proof = unverified
	if o.CRC64 {
		proof = byCRC64
	}
	if err := r.send(o, out); err != nil {
		return proof, objectFailed, err
	}
	return proof, objectOK, nil
}

// send sends an object. A client that does not read keeps Send waiting for as long as the
// stream is there, and the stream ends when its handler returns: so Send waits in a
// goroutine of its own, which the end of the handler ends.
func (r *objectReader) send(o fabric.Object, out grpc.ServerStreamingServer[adminpb.ObjectPart]) error {
	ctx, cancel := context.WithTimeout(out.Context(), r.within)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- sendObject(o, out) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fabric.ContextError(ctx, "")
	}
}

func sendObject(o fabric.Object, out grpc.ServerStreamingServer[adminpb.ObjectPart]) error {
	head := &adminpb.ObjectPart{Size: uint64(len(o.B)), Verification: adminpb.Verification_VERIFICATION_UNVERIFIED}
	if o.CRC64 {
		head.Verification = adminpb.Verification_VERIFICATION_CRC64
	}
	if err := out.Send(head); err != nil {
		return err
	}
	for b := o.B; len(b) > 0; {
		n := min(len(b), objectPart)
		if err := out.Send(&adminpb.ObjectPart{Data: b[:n]}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
