package core

import (
	"errors"
	"time"

	"meridian/wire"
	proto "meridian/wire/link"
)

// refusal is a message that was understood and may not come, or not so. A
// handler that returns it, or an error of the codec, has changed nothing: each
// checks the whole message first and applies it afterwards. What is left is to
// close the lane, which Lane.parse does.
type refusal struct {
	code wire.Code
	text string
}

// Error says both.
func (e *refusal) Error() string { return e.code.Error() + ": " + e.text }

func refuse(code wire.Code, text string) error { return &refusal{code, text} }

// refused closes the lane for a message at the stream offset at.
func (l *Lane) refused(now time.Duration, at uint64, err error) {
	if re, ok := errors.AsType[*refusal](err); ok {
		l.fail(now, at, re.code, re.text)
		return
	}
	l.failWith(now, at+proto.FrameLen, err)
}
