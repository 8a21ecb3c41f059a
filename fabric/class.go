package fabric

import "context"

// Class is how urgent a call is, the most urgent first. A fabric that carries
// several calls over one path serves the more urgent one first.
type Class uint8

// The classes, with the numbers that the link protocol gives them.
const (
	ClassUrgent Class = iota // a user waits for it
	ClassSoon                // the next step needs it
	ClassNormal              // prefetch, hand-off ahead of time, probes
	ClassBulk                // offload and rebalancing
	Classes     = 4
)

var classNames = [Classes]string{"urgent", "soon", "normal", "bulk"}

// String is the class's name in lower case.
func (c Class) String() string { return classNames[min(c, ClassBulk)] }

type classKey struct{}

// WithClass sets the class of calls that are made with the context; above
// ClassBulk it is ClassBulk.
func WithClass(ctx context.Context, c Class) context.Context {
	return context.WithValue(ctx, classKey{}, min(c, ClassBulk))
}

// ClassOf is the class that WithClass set; without one, a fabric chooses.
func ClassOf(ctx context.Context) (c Class, ok bool) {
	c, ok = ctx.Value(classKey{}).(Class)
	return c, ok
}
