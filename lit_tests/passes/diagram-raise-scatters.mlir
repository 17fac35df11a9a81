// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scatters{sums=S,count,product,rows,wide}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scatters{sums=S,count,product,rows,wide}' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scatters' %s | filecheck %s --check-prefix PAYS
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-raise-scatters{sums=none}' %s | filecheck %s --check-prefix NONE
// RUN: xdsl-opt --verify-diagnostics -p 'diagram-raise-scatters{sums=A}' %s | filecheck %s --check-prefix WRONG

// WRONG: %A is no sum of what data name the place of: such are %S, %count, %few, %product, %rows, %wide

// NONE-NOT: diagram.scatter

!X = tensor<?x?xf32, #diagram.array<[t, c]>>
!Y = tensor<?x?x?xf32, #diagram.array<[t, r, c]>>
!R = tensor<?x?xf32, #diagram.array<[r, c]>>
!T = tensor<?xi32, #diagram.array<[t]>>
!C = tensor<?xi32, #diagram.array<[r]>>
!N = tensor<?x?xi32, #diagram.array<[t, r]>>
!O = tensor<?x?xf32, #diagram.array<[t, r]>>
!r = tensor<?xf32, #diagram.array<[r]>>
!X16 = tensor<?x?xf16, #diagram.array<[t, c]>>
!Y16 = tensor<?x?x?xf16, #diagram.array<[t, r, c]>>
!E = tensor<?x4xf32, #diagram.array<[t, e]>>
!t = tensor<?xf32, #diagram.array<[t]>>
!e = tensor<4xf32, #diagram.array<[e]>>


// Rows, of which another condition leaves some elements: that stays one of the elements.

// CHECK-LABEL: func.func @rows_of_a_table
// CHECK-SAME:  derivation = [#hierarchy.step<"diagram-raise-scatters", "%S", "what data name the place of is added up there", "asked for">]
// CHECK:       %Y = diagram.map (%x = %X : tensor<?x?xf32, #diagram.array<[t, c]>>) -> tensor<?x?xf32, #diagram.array<[t, c]>>
// CHECK:       %0 = diagram.where %Y if "kind[t] + 1 <= c" with (kind = %kind : tensor<?xi32, #diagram.array<[t]>>)
// CHECK-NEXT:  %S = diagram.scatter %0 at "table[t], c" with (table = %table : tensor<?xi32, #diagram.array<[t]>>) : tensor<?x?xf32, #diagram.array<[t, c]>> -> tensor<?x?xf32, #diagram.array<[r, c]>>
// CHECK-NEXT:  func.return %S
// PAYS-LABEL:  func.func @rows_of_a_table
// PAYS-SAME:   #hierarchy.step<"diagram-raise-scatters", "%S", "what data name the place of is added up there", "estimated
// PAYS:        %S = diagram.scatter %0 at "table[t], c"
func.func @rows_of_a_table(%X: !X, %table: !T, %kind: !T, %W: !R) -> !R
    attributes {sizes = #diagram.sizes<t = 4096, c = 128, r = 32000>} {
  %Y = diagram.map (%x = %X : !X) -> !Y {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }
  %kept = diagram.where %Y if "table[t] == r and kind[t] < c" with (table = %table : !T, kind = %kind : !T) : !Y
  %S = diagram.reduce add %kept over [t] : !Y -> !R
  func.return %S : !R
}

// Few places, of which each gets many: additions at one address take longer than to compare.

// PAYS-LABEL:  func.func @few_places
// PAYS-SAME:   #hierarchy.step<"decline diagram-raise-scatters", "%few", "what data name the place of is added up there", "estimated
// PAYS:        %few = diagram.reduce add %those over [t, c]
func.func @few_places(%X: !X, %table: !T, %W: !e) -> !e
    attributes {sizes = #diagram.sizes<t = 1000000, c = 1>} {
  %Y = diagram.map (%x = %X : !X) -> tensor<?x?x4xf32, #diagram.array<[t, c, e]>> {
    diagram.yield %x : f32
  }
  %those = diagram.where %Y if "table[t] == e" with (table = %table : !T)
      : tensor<?x?x4xf32, #diagram.array<[t, c, e]>>
  %few = diagram.reduce add %those over [t, c] : tensor<?x?x4xf32, #diagram.array<[t, c, e]>> -> !e
  func.return %few : !e
}

// A histogram, one place further on: integers.

// CHECK-LABEL: func.func @histogram
// CHECK-NEXT:  %one = diagram.fill 1 : i32 -> tensor<?xi32, #diagram.array<[t]>>
// CHECK-NEXT:  %count = diagram.scatter %one at "table[t] + 1" with (table = %table : tensor<?xi32, #diagram.array<[t]>>) : tensor<?xi32, #diagram.array<[t]>> -> tensor<?xi32, #diagram.array<[r]>>
// CHECK-NEXT:  func.return %count
func.func @histogram(%table: !T, %W: !r) -> !C {
  %one = diagram.fill 1 : i32 -> !N
  %those = diagram.where %one if "r == table[t] + 1" with (table = %table : !T) : !N
  %count = diagram.reduce add %those over [t] : !N -> !C
  func.return %count : !C
}

// A product with ones where they are equal, and of f16 accumulated in f32.

// CHECK-LABEL: func.func @one_hot
// CHECK:       %summand = diagram.map (%ones_1 = %ones : tensor<?xf32, #diagram.array<[t]>>, %x = %X : tensor<?x?xf32, #diagram.array<[t, c]>>) -> tensor<?x?xf32, #diagram.array<[t, c]>>
// CHECK:       %product = diagram.scatter %summand at "table[t], c" with (table = %table
// CHECK-NEXT:  func.return %product
func.func @one_hot(%X: !X, %table: !T, %W: !r) -> !R {
  %ones = diagram.fill 1.0 : f32 -> !O
  %equal = diagram.where %ones if "table[t] == r" with (table = %table : !T) : !O
  %product = diagram.contract %equal, %X over [t] accumulate f32 : !O, !X -> !R
  func.return %product : !R
}

// CHECK-LABEL: func.func @sixteen_bits
// CHECK:       %0 = diagram.cast %Y : tensor<?x?xf16, #diagram.array<[t, c]>> -> tensor<?x?xf32, #diagram.array<[t, c]>>
// CHECK-NEXT:  %wide = diagram.scatter %0 at "table[t], c" with (table = %table
// CHECK-NEXT:  func.return %wide
func.func @sixteen_bits(%X: !X16, %table: !T, %W: !r) -> !R {
  %Y = diagram.map (%x = %X : !X16) -> !Y16 {
    diagram.yield %x : f16
  }
  %kept = diagram.where %Y if "table[t] == r" with (table = %table : !T) : !Y16
  %wide = diagram.reduce add %kept over [t] : !Y16 -> !R
  func.return %wide : !R
}

// What says nothing of where is summed before.

// CHECK-LABEL: func.func @another_axis
// CHECK:       %0 = diagram.reduce add %Y over [c] : tensor<?x?xf32, #diagram.array<[t, c]>> -> tensor<?xf32, #diagram.array<[t]>>
// CHECK-NEXT:  %rows = diagram.scatter %0 at "table[t]" with (table = %table
// CHECK-NEXT:  func.return %rows
func.func @another_axis(%X: !X, %table: !T, %W: !r) -> !r {
  %Y = diagram.map (%x = %X : !X) -> !Y {
    diagram.yield %x : f32
  }
  %kept = diagram.where %Y if "table[t] == r" with (table = %table : !T) : !Y
  %rows = diagram.reduce add %kept over [t, c] : !Y -> !r
  func.return %rows : !r
}

// None of these: what varies along the axis; a maximum; a table along the axis; a position that is asked otherwise, too.

// CHECK-LABEL: func.func @others
// CHECK-NOT:   diagram.scatter
func.func @others(%X: !X, %U: !Y, %table: !T, %by_row: !C, %W: !R) -> (!R, !R, !R, !R) {
  %Y = diagram.map (%x = %X : !X) -> !Y {
    diagram.yield %x : f32
  }
  %a = diagram.where %U if "table[t] == r" with (table = %table : !T) : !Y
  %varies = diagram.reduce add %a over [t] : !Y -> !R
  %b = diagram.where %Y if "table[t] == r" with (table = %table : !T) : !Y
  %largest = diagram.reduce max %b over [t] : !Y -> !R
  %c = diagram.where %Y if "by_row[r] == r" with (by_row = %by_row : !C) : !Y
  %along = diagram.reduce add %c over [t] : !Y -> !R
  %d = diagram.where %Y if "table[t] == r and r < t" with (table = %table : !T) : !Y
  %twice = diagram.reduce add %d over [t] : !Y -> !R
  func.return %varies, %largest, %along, %twice : !R, !R, !R, !R
}
