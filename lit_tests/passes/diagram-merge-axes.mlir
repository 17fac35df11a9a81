// RUN: xdsl-opt -p 'diagram-merge-axes' %s | filecheck %s
// RUN: xdsl-opt -p 'diagram-merge-axes' %s | xdsl-opt | filecheck %s

!Q = tensor<8x16xf16, #diagram.array<[q, d]>>
!K = tensor<?x4x16xf16, #diagram.array<[x, y, d]>>
!S = tensor<8x?x4xf32, #diagram.array<[q, x, y]>>
!half = tensor<8x?xf32, #diagram.array<[q, x]>>
!row = tensor<8xf32, #diagram.array<[q]>>
!T = tensor<?x3x5x2xf32, #diagram.array<[b, x, y, z]>>
!b = tensor<?xf32, #diagram.array<[b]>>
!turned = tensor<8x4x?xf32, #diagram.array<[q, y, x]>>
!apart = tensor<?x8x4xf32, #diagram.array<[x, q, y]>>

// Both maxima and both sums become one; what is saved has its own axes again, and the default is a product.

// CHECK-LABEL: func.func @scores
// CHECK-SAME: sizes = #diagram.sizes<x = 6, x_y = 24>
// CHECK-SAME: derivation = [#hierarchy.step<"diagram-merge-axes", "%m_y into %m", "associativity: a reduction of a reduction is one over all axes", "">, #hierarchy.step<"diagram-merge-axes", "[x, y] as x_y", "a tuple of axes is an axis", "side by side in every array that has one of them">]
// CHECK-NEXT: %K_flat = diagram.collapse %K [x, y] as x_y : tensor<?x4x16xf16, #diagram.array<[x, y, d]>> -> tensor<?x16xf16, #diagram.array<[x_y, d]>>
// CHECK-NEXT: %S_flat = diagram.contract %Q, %K_flat over [d] accumulate f32 : tensor<8x16xf16, #diagram.array<[q, d]>>, tensor<?x16xf16, #diagram.array<[x_y, d]>> -> tensor<8x?xf32, #diagram.array<[q, x_y]>>
// CHECK-NEXT: %m = diagram.reduce max %S_flat over [x_y] : tensor<8x?xf32, #diagram.array<[q, x_y]>> -> tensor<8xf32, #diagram.array<[q]>>
// CHECK-NEXT: %l = diagram.reduce add %S_flat over [x_y] : tensor<8x?xf32, #diagram.array<[q, x_y]>> -> tensor<8xf32, #diagram.array<[q]>>
// CHECK-NEXT: %S = diagram.expand %S_flat x_y as [x, y] : tensor<8x?xf32, #diagram.array<[q, x_y]>> -> tensor<8x?x4xf32, #diagram.array<[q, x, y]>>
// CHECK-NEXT: func.return %S, %m, %l : tensor<8x?x4xf32, #diagram.array<[q, x, y]>>, tensor<8xf32, #diagram.array<[q]>>, tensor<8xf32, #diagram.array<[q]>>
func.func @scores(%Q: !Q, %K: !K) -> (!S, !row, !row) attributes {sizes = #diagram.sizes<x = 6>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %m_y = diagram.reduce max %S over [y] : !S -> !half
  %m = diagram.reduce max %m_y over [x] : !half -> !row
  %l = diagram.reduce add %S over [x, y] : !S -> !row
  func.return %S, %m, %l : !S, !row, !row
}

// Three axes are one; that of the batch, which nothing reduces, stays.

// CHECK-LABEL: func.func @three
// CHECK-NEXT: %T_flat = diagram.collapse %T [x, y, z] as x_y_z : tensor<?x3x5x2xf32, #diagram.array<[b, x, y, z]>> -> tensor<?x30xf32, #diagram.array<[b, x_y_z]>>
// CHECK-NEXT: %l = diagram.reduce add %T_flat over [x_y_z] : tensor<?x30xf32, #diagram.array<[b, x_y_z]>> -> tensor<?xf32, #diagram.array<[b]>>
func.func @three(%T: !T) -> !b {
  %l = diagram.reduce add %T over [z, x, y] : !T -> !b
  func.return %l : !b
}

// A condition that asks for positions along x keeps them apart; so do a position, and a sum of maxima.

// CHECK-LABEL: func.func @asked
// CHECK-NEXT: %W = diagram.where %S if "x <= q" : tensor<8x?x4xf32, #diagram.array<[q, x, y]>>
// CHECK-NEXT: %m = diagram.reduce max %W over [x, y]
func.func @asked(%S: !S) -> !row {
  %W = diagram.where %S if "x <= q" : !S
  %m = diagram.reduce max %W over [x, y] : !S -> !row
  func.return %m : !row
}

// CHECK-LABEL: func.func @sum_of_maxima
// CHECK-NEXT: %m = diagram.reduce max %S over [y] : tensor<8x?x4xf32, #diagram.array<[q, x, y]>> -> tensor<8x?xf32, #diagram.array<[q, x]>>
// CHECK-NEXT: %l = diagram.reduce add %m over [x] : tensor<8x?xf32, #diagram.array<[q, x]>> -> tensor<8xf32, #diagram.array<[q]>>
func.func @sum_of_maxima(%S: !S) -> !row {
  %m = diagram.reduce max %S over [y] : !S -> !half
  %l = diagram.reduce add %m over [x] : !half -> !row
  func.return %l : !row
}

// Two orders in memory, or another axis between, and the derivation says so.

// CHECK-LABEL: func.func @turned
// CHECK-SAME: #hierarchy.step<"decline diagram-merge-axes", "[x, y]", "a tuple of axes is an axis", "'y' does not lie within 'x' in %U[q, y, x]">
// CHECK-NEXT: %U = diagram.cast
// CHECK-NEXT: %l = diagram.reduce add %U over [x, y] : tensor<8x4x?xf32, #diagram.array<[q, y, x]>> -> tensor<8xf32, #diagram.array<[q]>>
func.func @turned(%S: !S) -> !row {
  %U = diagram.cast %S : !S -> !turned
  %l = diagram.reduce add %U over [x, y] : !turned -> !row
  func.return %l : !row
}

// CHECK-LABEL: func.func @apart
// CHECK-SAME: #hierarchy.step<"decline diagram-merge-axes", "[x, y]", "a tuple of axes is an axis", "'y' does not lie within 'x' in %S[x, q, y]">
// CHECK-NEXT: %l = diagram.reduce add %S over [x, y]
func.func @apart(%S: !apart) -> !row {
  %l = diagram.reduce add %S over [x, y] : !apart -> !row
  func.return %l : !row
}

// Pages that a table names are keys one after another: the outer axis chooses entries, the inner one lies in a page. The
// condition asks for positions in both together. Entries and pages keep their own axes.

!pages = tensor<?x4x16xf16, #diagram.array<[p, s, d]>>
!table = tensor<?x?xi32, #diagram.array<[b, x]>>
!length = tensor<?xi32, #diagram.array<[b]>>
!kept = tensor<?x?x4xi32, #diagram.array<[b, x, y]>>
!keys = tensor<?x?x4x16xf16, #diagram.array<[b, x, y, d]>>
!query = tensor<?x16xf16, #diagram.array<[b, d]>>
!scores = tensor<?x?x4xf32, #diagram.array<[b, x, y]>>
!most = tensor<?xf32, #diagram.array<[b]>>

// CHECK-LABEL: func.func @paged
// CHECK-SAME: sizes = #diagram.sizes<b = 2, x = 6, x_y = 24>
// CHECK-NEXT: %kept_flat = diagram.collapse %kept [x, y] as x_y
// CHECK-NEXT: %K = diagram.read %pages at "table[b, x_y // 4], x_y % 4, d" padded with (table = %table : tensor<?x?xi32, #diagram.array<[b, x]>>) : tensor<?x4x16xf16, #diagram.array<[p, s, d]>> -> tensor<?x?x16xf16, #diagram.array<[b, x_y, d]>>
// CHECK-NEXT: %S = diagram.contract %Q, %K over [d]
// CHECK-NEXT: %W = diagram.where %S if "x_y < length[b] and kept[b, x_y] == 1 and (2 * x_y + 3 > 5)" with (length = %length : tensor<?xi32, #diagram.array<[b]>>, kept = %kept_flat : tensor<?x?xi32, #diagram.array<[b, x_y]>>)
// CHECK-NEXT: %m = diagram.reduce max %W over [x_y]
func.func @paged(%Q: !query, %pages: !pages, %table: !table, %length: !length, %kept: !kept) -> !most
    attributes {sizes = #diagram.sizes<b = 2, x = 6>} {
  %K = diagram.read %pages at "table[b, x], y, d" padded with (table = %table : !table) : !pages -> !keys
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !query, !keys -> !scores
  %W = diagram.where %S if "(x * 4 + y) < length[b] and kept[b, x, y] == 1 and 8 * x + 2 * y + 3 > 5" with (length = %length : !length, kept = %kept : !kept) : !scores
  %m = diagram.reduce max %W over [x, y] : !scores -> !most
  func.return %m : !most
}

// Not where a position is asked for along one of them, where rows are of another size, or where the outer axis says more
// than which entry.

// CHECK-LABEL: func.func @row_of_five
// CHECK: %m = diagram.reduce max %W over [x, y]
func.func @row_of_five(%Q: !query, %pages: !pages, %table: !table, %length: !length) -> !most {
  %K = diagram.read %pages at "table[b, x], y, d" padded with (table = %table : !table) : !pages -> !keys
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !query, !keys -> !scores
  %W = diagram.where %S if "x * 5 + y < length[b]" with (length = %length : !length) : !scores
  %m = diagram.reduce max %W over [x, y] : !scores -> !most
  func.return %m : !most
}

// CHECK-LABEL: func.func @further_on
// CHECK: %m = diagram.reduce max %S over [x, y]
func.func @further_on(%Q: !query, %pages: !pages, %table: !table) -> !most {
  %K = diagram.read %pages at "table[b, x] + x, y, d" padded with (table = %table : !table) : !pages -> !keys
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !query, !keys -> !scores
  %m = diagram.reduce max %S over [x, y] : !scores -> !most
  func.return %m : !most
}
