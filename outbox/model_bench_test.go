package outbox

import (
	"fmt"
	"strings"
	"testing"
)

// benchEvents are a plain event with 1 KiB of JSON, and one with everything.
func benchEvents(tb testing.TB) map[string]Event {
	var items []string
	for i := range 13 {
		items = append(items, fmt.Sprintf(`{"sku":"ABC-%05d","quantity":%d,"price":"19.99","note":"a gift, \"wrapped\""}`, i, i))
	}
	plain := validEvent()
	plain.Time = mustTime(tb, "2026-01-01T00:00:00.123Z")
	plain.Data = JSON([]byte(`{"order":"order-1","items":[` + strings.Join(items, ",") + `]}`))
	full := fullEvent(tb)
	full.Data = plain.Data
	return map[string]Event{"plain": plain, "full": full}
}

func benchmarkEvents(b *testing.B, f func(*Event)) {
	for name, e := range benchEvents(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f(&e)
			}
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	benchmarkEvents(b, func(e *Event) { _ = e.Validate() })
}

func BenchmarkDecode(b *testing.B) {
	for name, e := range benchEvents(b) {
		b.Run(name, func(b *testing.B) {
			c := storedColumns(&e)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.decode(1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkColumns(b *testing.B) {
	args := make([]any, 0, eventInsertCount)
	benchmarkEvents(b, func(e *Event) { args = e.appendColumns(args[:0]) })
}

func BenchmarkSize(b *testing.B) {
	benchmarkEvents(b, func(e *Event) { _ = e.size() })
}

func BenchmarkMessageID(b *testing.B) {
	benchmarkEvents(b, func(e *Event) { _ = e.MessageID() })
}

func BenchmarkAttributes(b *testing.B) {
	attributes := make([]Attribute, 0, 32)
	benchmarkEvents(b, func(e *Event) { attributes = e.AppendAttributes(attributes[:0]) })
}

func BenchmarkStructured(b *testing.B) {
	buf := make([]byte, 0, 4096)
	benchmarkEvents(b, func(e *Event) { buf, _ = e.AppendStructured(buf[:0]) })
}
