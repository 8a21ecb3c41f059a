package adminpb

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error makes the gRPC error that a server returns: text for people, d for
// programs, and the gRPC code that fits d.Code.
func Error(d *ErrorDetail, text string) error {
	s := status.New(grpcCode(d.GetCode()), text)
	if with, err := s.WithDetails(d); err == nil {
		s = with
	}
	return s.Err()
}

// Detail returns the detail of an error that a call of this API returned, or
// nil if it has none, as when the daemon was never reached.
func Detail(err error) *ErrorDetail {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range s.Details() {
		if e, ok := d.(*ErrorDetail); ok {
			return e
		}
	}
	return nil
}

// grpcCodes maps the numbers of wire/errors.json; a number that is not here is
// Internal. The numbers never change their meaning.
var grpcCodes = map[uint32]codes.Code{
	100: codes.NotFound,           // ABSENT
	101: codes.NotFound,           // STALE
	102: codes.AlreadyExists,      // EXISTS
	103: codes.ResourceExhausted,  // FULL
	104: codes.DataLoss,           // CHECKSUM
	105: codes.InvalidArgument,    // TOO_LARGE
	106: codes.NotFound,           // NS_UNKNOWN
	107: codes.NotFound,           // LEASE_LOST
	108: codes.PermissionDenied,   // DENIED
	109: codes.FailedPrecondition, // GEOMETRY
	110: codes.InvalidArgument,    // INVALID
	200: codes.DeadlineExceeded,   // DEADLINE
	201: codes.Canceled,           // CANCELLED
	202: codes.ResourceExhausted,  // BUSY
	203: codes.Unavailable,        // DRAINING
	204: codes.Unimplemented,      // UNSUPPORTED
	205: codes.Unavailable,        // LANE_LOST
	206: codes.Unavailable,        // NO_PROGRESS
	207: codes.Unavailable,        // UNREACHABLE
	305: codes.PermissionDenied,   // AUTH
	309: codes.ResourceExhausted,  // TOO_MANY
	407: codes.InvalidArgument,    // MANIFEST
	600: codes.InvalidArgument,    // CONFIG
}

func grpcCode(code uint32) codes.Code {
	if c, ok := grpcCodes[code]; ok {
		return c
	}
	return codes.Internal
}
