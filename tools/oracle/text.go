package main

import (
	"strconv"
	"unicode/utf8"
)

// unquote reads a field of an input file: a Go string literal when it starts
// with a double quote, itself otherwise.
func unquote(field string) string {
	if len(field) == 0 || field[0] != '"' {
		return field
	}
	value, err := strconv.Unquote(field)
	if err != nil {
		panic("bad literal in an input file: " + field)
	}
	return value
}

// A JSON string cannot hold arbitrary bytes. A record in which some string is
// not UTF-8 is written with "latin1": true and with every byte of every string
// as the character of that number.
func anyNotUTF8(values ...string) bool {
	for _, value := range values {
		if !utf8.ValidString(value) {
			return true
		}
	}
	return false
}

func latin1(value string) string {
	runes := make([]rune, len(value))
	for i := range len(value) {
		runes[i] = rune(value[i])
	}
	return string(runes)
}
