package store

import (
	"errors"
	"fmt"

	"meridian/adapters/mooncake/rpc"
)

// Code is an error code of Mooncake.
type Code int32

// Codes that callers act on.
const (
	CodeNoSegment   Code = -101
	CodeNoSpace     Code = -200
	CodeBadArgument Code = -600
	CodeNotOwner    Code = -601
	CodeNotReady    Code = -703
	CodeNotFound    Code = -704
	CodeExists      Code = -705
	CodeLeased      Code = -706
	CodeLeaseOver   Code = -707
	CodeChecksum    Code = -801
)

var codeNames = map[Code]string{
	CodeNoSegment:   "no such segment",
	CodeNoSpace:     "no space in any segment",
	CodeBadArgument: "invalid arguments",
	CodeNotOwner:    "another client began this put",
	CodeNotReady:    "the object is still being written",
	CodeNotFound:    "no such object",
	CodeExists:      "the object exists",
	CodeLeased:      "a reader has a lease on the object",
	CodeLeaseOver:   "the lease ran out while the object was read",
	CodeChecksum:    "the object does not match its CRC-64",
}

// Error is the code in words; a Code may be matched by errors.Is.
func (c Code) Error() string {
	if s, ok := codeNames[c]; ok {
		return fmt.Sprintf("%s (%d)", s, int32(c))
	}
	return fmt.Sprintf("code %d", int32(c))
}

// Error is what the master, or a check of ours, says of an object or a segment.
type Error struct {
	Op  string
	Key string
	Err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("mooncake store: %s %.100q: %v", e.Op, e.Key, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ErrNoReplica is an object that has no copy which the transfer engine can read.
var ErrNoReplica = errors.New("no complete replica in memory that is reached over tcp")

// ErrVersion is a master whose messages are not those of KnownVersion; Client.Probe
// names the differences.
var ErrVersion = errors.New("the master's messages are not those of Mooncake " + KnownVersion)

// failed joins what a call returned with what the master answered.
func failed(op, key string, err error, code int32) error {
	if err == nil && code != 0 {
		err = Code(code)
	}
	if err == nil {
		return nil
	}
	var refused *rpc.Error
	var answer *rpc.AnswerError
	if errors.As(err, &answer) || errors.As(err, &refused) && (refused.Code == rpc.CodeUnknown || refused.Code == rpc.CodeBadArguments) {
		err = fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return &Error{Op: op, Key: key, Err: err}
}
