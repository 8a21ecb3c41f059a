// Package structpack is the struct_pack serialization of yalantinglibs, as far as
// Mooncake's RPC uses it.
//
// A Go type is the schema. From it [Of] and [Tuple] compute, once and at start-up,
// the type literal (one byte or a few per member, as struct_pack derives them from
// C++ types) and the type code, which is taken from the literal's MD5 and stands in
// front of every message. A message of another version has another code, and is
// refused by it, never misread.
//
//	Go                                C++                      literal
//	bool, uint8, int32, uint64, ...   the same                 0b, 06, 01, 04, ...
//	a named integer                   an enum                  that of its integer
//	string                            std::string              80 0c
//	[]T                               std::vector<T>           84 T
//	*T                                std::optional<T>         85 T
//	struct                            a struct, a pair         fd members ff
//	struct that embeds Variant        std::variant             86 members ff
//	Expected[T]                       tl::expected<T, enum>    87 T 01
//	Void                              void in an expected      fa
//
// The message: four bytes code (little-endian, lowest bit clear), members in their
// order. With the lowest bit set a byte of flags follows, which gives the width of
// the length fields, whether the message says its own length, and whether the type
// literal follows. Both forms are read; what is written has no literal.
//
// It imports the standard library only. It does no I/O.
package structpack
