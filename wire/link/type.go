package link

import "strconv"

// Type is a frame's type.
type Type uint8

// The frame types: agent to agent below 32, engine socket (feature LOCAL) from 32.
const (
	TypeHello   Type = 1
	TypeOpen    Type = 2
	TypeOpened  Type = 3
	TypeHas     Type = 4
	TypeTable   Type = 5
	TypePull    Type = 6
	TypePush    Type = 7
	TypeGrant   Type = 8
	TypeData    Type = 9
	TypeCommit  Type = 10
	TypeEnd     Type = 11
	TypeRenew   Type = 12
	TypeRelease Type = 13
	TypeStat    Type = 14
	TypePing    Type = 15
	TypeCancel  Type = 16
	TypeAbort   Type = 17
	TypeGoAway  Type = 18
	TypeError   Type = 19

	// Spoken where both HELLOs have FeatureStanding, else unknown.
	TypeStanding Type = 20
	TypeDeliver  Type = 21

	TypeMap       Type = 32
	TypeAcquire   Type = 33
	TypeAcquired  Type = 34
	TypePut       Type = 35
	TypeBegin     Type = 36
	TypeTokens    Type = 37
	TypePhase     Type = 38
	TypeFinish    Type = 39
	TypeWindow    Type = 40
	TypeWindowEnd Type = 41
	TypeWindowed  Type = 42

	// Spoken where both HELLOs have FeatureGroup, else unknown.
	TypeLoad     Type = 43
	TypeLoaded   Type = 44
	TypeReserve  Type = 45
	TypeReserved Type = 46
	TypeFill     Type = 47
	TypePutAt    Type = 48
	TypePhaseAt  Type = 49
	TypeResume   Type = 50
	TypeHandoff  Type = 51
	TypeEvicted  Type = 52
	TypeProcess  Type = 53
)

// NeedsGroup tells whether t is spoken only where both HELLOs have FeatureGroup.
func (t Type) NeedsGroup() bool { return t >= TypeLoad && t <= TypeProcess }

// typeInfo holds a type's name and the bounds of Frame.Len for it.
type typeInfo struct {
	name     string
	min, max uint32
}

// control gives the bounds of a control payload of fixed bytes and at most n
// records of width bytes; the trailer comes on top.
func control(name string, fixed, n, width int) typeInfo {
	return typeInfo{name, uint32(fixed + TrailerLen), uint32(min(fixed+n*width+TrailerLen, MaxControl))}
}

// from is i with least bytes of fields.
func (i typeInfo) from(least int) typeInfo {
	i.min = uint32(least + TrailerLen)
	return i
}

var types = [...]typeInfo{
	TypeHello:     control("HELLO", helloFixed, MaxTLVs, tlvFixed+MaxTLV),
	TypeOpen:      control("OPEN", openFixed, MaxManifest, 1),
	TypeOpened:    control("OPENED", openedFixed, 3, MaxText),
	TypeHas:       control("HAS", hasFixed, MaxItems, wantLen),
	TypeTable:     control("TABLE", tableFixed, MaxItems, haveLen),
	TypePull:      control("PULL", pullFixed, MaxItems, wantLen),
	TypePush:      control("PUSH", pushFixed, MaxItems, pushItemLen),
	TypeGrant:     control("GRANT", grantFixed, MaxItems, codeLen),
	TypeData:      {"DATA", DataPrefixLen + 1, MaxData},
	TypeCommit:    control("COMMIT", 0, 0, 0),
	TypeEnd:       control("END", endFixed, MaxItems*codeLen+MaxText, 1),
	TypeRenew:     control("RENEW", renewLen, 0, 0),
	TypeRelease:   control("RELEASE", releaseFixed, MaxLeases, leaseLen),
	TypeStat:      control("STAT", hasFixed, MaxItems, wantLen),
	TypePing:      control("PING", 0, 0, 0),
	TypeCancel:    control("CANCEL", 0, 0, 0),
	TypeAbort:     control("ABORT", 0, 0, 0),
	TypeGoAway:    control("GOAWAY", goAwayFixed, MaxText, 1),
	TypeError:     control("ERROR", errorFixed, MaxText, 1),
	TypeStanding:  control("STANDING", standingLen, 0, 0),
	TypeDeliver:   control("DELIVER", pushFixed, MaxItems, pushItemLen),
	TypeMap:       control("MAP", mapFixed, MaxSegs, segLen),
	TypeAcquire:   control("ACQUIRE", acquireFixed, MaxItems, wantLen),
	TypeAcquired:  control("ACQUIRED", acquiredFixed, MaxItems, placeLen),
	TypePut:       control("PUT", putFixed, MaxItems, putItemLen),
	TypeBegin:     control("BEGIN", beginFixed, MaxControl, 1),
	TypeTokens:    control("TOKENS", tokensFixed, MaxRows*5+MaxTokens*4, 1),
	TypePhase:     control("PHASE", phaseFixed, MaxInject, 4),
	TypeFinish:    control("FINISH", finishLen, 0, 0),
	TypeWindow:    control("WINDOW", windowFixed, MaxRanges, 4),
	TypeWindowEnd: control("WINDOWEND", windowEndFixed, MaxItems, putItemLen),
	TypeWindowed:  control("WINDOWED", windowedFixed, MaxText, 1),
	TypeLoad:      control("LOAD", loadFixed+MaxHolders*holderLen, MaxItems, loadItemLen).from(loadFixed),
	TypeLoaded:    control("LOADED", loadedFixed, MaxItems, placeLen).from(loadedFixed + placeLen),
	TypeReserve:   control("RESERVE", reserveFixed, MaxItems, storeItemLen),
	TypeReserved:  control("RESERVED", reservedFixed, MaxItems, codeLen),
	TypeFill:      control("FILL", fillFixed, MaxItems, fillItemLen),
	TypePutAt:     control("PUTAT", putAtFixed, MaxItems, storeItemLen),
	TypePhaseAt:   control("PHASEAT", phaseAtFixed, MaxInject, 4),
	TypeResume:    control("RESUME", resumeFixed, MaxPrompt*4+2*MaxText, 1),
	TypeHandoff:   control("HANDOFF", handoffLen, 0, 0),
	TypeEvicted:   control("EVICTED", evictedFixed, MaxItems, evictedItemLen),
	TypeProcess:   control("PROCESS", 0, 0, 0),
}

// Known tells whether this version defines t.
func (t Type) Known() bool { return int(t) < len(types) && types[t].name != "" }

// String is the name in docs/spec/link-v1.md, or the number.
func (t Type) String() string {
	if t.Known() {
		return types[t].name
	}
	return "type " + strconv.Itoa(int(t))
}

// bounds of Frame.Len. A type that this version does not define is a control
// frame of any length.
func (t Type) bounds() (lo, hi uint32) {
	if t.Known() {
		return types[t].min, types[t].max
	}
	return TrailerLen, MaxControl
}
