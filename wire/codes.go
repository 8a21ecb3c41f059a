package wire

// Code is a stable error number of errors.json. It is an error, so that
// errors.Is(err, CodeChecksum) works on every typed error of this module.
type Code uint16

const (
	CodeOK            Code = 0   // done
	CodeAbsent        Code = 100 // no such block here
	CodeStale         Code = 101 // the reference's generation is gone: the slot was reused
	CodeExists        Code = 102 // a block with this key is already published
	CodeFull          Code = 103 // no room: every block is referenced, leased or reserved
	CodeChecksum      Code = 104 // the body does not match its BLAKE3-128
	CodeTooLarge      Code = 105 // longer than the limit
	CodeNSUnknown     Code = 106 // the namespace is not open here
	CodeLeaseLost     Code = 107 // the lease lapsed or was never granted
	CodeDenied        Code = 108 // not allowed; sent to peers as ABSENT
	CodeGeometry      Code = 109 // the manifests agree on tenant, model and role and differ elsewhere
	CodeInvalid       Code = 110 // the item's own fields contradict each other
	CodeDeadline      Code = 200 // the time that the request was given ran out
	CodeCancelled     Code = 201 // the asker took the request back
	CodeBusy          Code = 202 // above the agreed number of requests or bytes in flight
	CodeDraining      Code = 203 // this agent is leaving and takes no new requests
	CodeUnsupported   Code = 204 // a message type or feature that this side does not speak
	CodeLaneLost      Code = 205 // the connection that carried the request ended
	CodeNoProgress    Code = 206 // no data for 5 s inside a pull
	CodeUnreachable   Code = 207 // no peer, or no lane to it
	CodeInternal      Code = 208 // a defect of this agent
	CodeLinkMagic     Code = 300 // the first frame is no HELLO of this protocol
	CodeCRC           Code = 301 // a frame's crc32c does not match
	CodeLength        Code = 302 // a frame or field is longer or shorter than its type allows
	CodeState         Code = 303 // a well-formed message at a moment when it may not come
	CodeFlowViolation Code = 304 // twice above the agreed limits, or data that nobody granted
	CodeAuth          Code = 305 // the peer did not prove an identity on the allow list
	CodeLinkVersion   Code = 306 // no common protocol version
	CodeHelloTimeout  Code = 307 // no complete HELLO within 3 s
	CodeIncarnation   Code = 308 // the peer restarted: all state of its earlier incarnation is dropped
	CodeTooMany       Code = 309 // more connections, sessions, lanes or namespaces than the limit
	CodeTruncated     Code = 400 // fewer bytes than the header says
	CodeMagic         Code = 401 // not an MRDN payload
	CodeVersion       Code = 402 // an MRDN version other than 1
	CodeTier          Code = 403 // tier above 2 (strict reader)
	CodePadding       Code = 404 // padding bytes are not zero (strict reader)
	CodeTrailing      Code = 405 // bytes after the body (strict reader)
	CodeEnvelope      Code = 406 // not a Meridian 0.2 MNCK envelope
	CodeManifest      Code = 407 // the manifest is not canonical
	CodeConfig        Code = 600 // the configuration is not valid
)

var codeNames = map[Code]string{
	0:   "OK",
	100: "ABSENT",
	101: "STALE",
	102: "EXISTS",
	103: "FULL",
	104: "CHECKSUM",
	105: "TOO_LARGE",
	106: "NS_UNKNOWN",
	107: "LEASE_LOST",
	108: "DENIED",
	109: "GEOMETRY",
	110: "INVALID",
	200: "DEADLINE",
	201: "CANCELLED",
	202: "BUSY",
	203: "DRAINING",
	204: "UNSUPPORTED",
	205: "LANE_LOST",
	206: "NO_PROGRESS",
	207: "UNREACHABLE",
	208: "INTERNAL",
	300: "LINK_MAGIC",
	301: "CRC",
	302: "LENGTH",
	303: "STATE",
	304: "FLOW_VIOLATION",
	305: "AUTH",
	306: "LINK_VERSION",
	307: "HELLO_TIMEOUT",
	308: "INCARNATION",
	309: "TOO_MANY",
	400: "TRUNCATED",
	401: "MAGIC",
	402: "VERSION",
	403: "TIER",
	404: "PADDING",
	405: "TRAILING",
	406: "ENVELOPE",
	407: "MANIFEST",
	600: "CONFIG",
}

func (c Code) String() string { return codeNames[c] }
func (c Code) Error() string  { return c.String() }
