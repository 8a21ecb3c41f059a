package adminpb

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meridian/wire"
)

func TestErrorCarriesItsDetailAndCode(t *testing.T) {
	in := &ErrorDetail{Code: uint32(wire.CodeAbsent), Name: "ABSENT", Fix: "compute it"}
	err := Error(in, "block 12ab: ABSENT")
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.NotFound || s.Message() != "block 12ab: ABSENT" {
		t.Fatalf("status %v, message %q", s.Code(), s.Message())
	}
	got := Detail(err)
	if got.GetCode() != 100 || got.GetName() != "ABSENT" || got.GetFix() != "compute it" {
		t.Fatalf("detail %v", got)
	}
}

func TestErrorsWithoutDetailHaveNone(t *testing.T) {
	for _, err := range []error{errors.New("plain"), status.Error(codes.Unavailable, "no connection")} {
		if d := Detail(err); d != nil {
			t.Errorf("%v: detail %v", err, d)
		}
	}
}

func TestCodesKeepTheirMeaningInGRPC(t *testing.T) {
	for code, want := range map[wire.Code]codes.Code{
		wire.CodeAbsent:      codes.NotFound,
		wire.CodeNSUnknown:   codes.NotFound,
		wire.CodeChecksum:    codes.DataLoss,
		wire.CodeDenied:      codes.PermissionDenied,
		wire.CodeAuth:        codes.PermissionDenied,
		wire.CodeGeometry:    codes.FailedPrecondition,
		wire.CodeInvalid:     codes.InvalidArgument,
		wire.CodeDeadline:    codes.DeadlineExceeded,
		wire.CodeBusy:        codes.ResourceExhausted,
		wire.CodeDraining:    codes.Unavailable,
		wire.CodeUnsupported: codes.Unimplemented,
		wire.CodeManifest:    codes.InvalidArgument,
		wire.CodeInternal:    codes.Internal,
		wire.CodeLinkMagic:   codes.Internal,
	} {
		if got := grpcCode(uint32(code)); got != want {
			t.Errorf("%v: %v, want %v", code, got, want)
		}
	}
}
