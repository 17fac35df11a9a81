// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-depths' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=h100},diagram-merge-depths' %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},diagram-merge-depths{axes=h,d}' %s | filecheck %s --check-prefix ASKED
// RUN: xdsl-opt --verify-diagnostics -p 'set-machine{name=a100},diagram-merge-depths{axes=b,m}' %s | filecheck %s --check-prefix NONE

// NONE: no product sums over axis 'm' and another one, of which one has several pieces of 32 bytes at least, by a size that the types tell: such are b, d, h, k

!A = tensor<?x?x1024xf16, #diagram.array<[b, m, k]>>
!B = tensor<?x1024x?xf16, #diagram.array<[b, k, n]>>
!P = tensor<?x?x?xf32, #diagram.array<[b, m, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

// A sum of products is one product, fed piece by piece.
// CHECK-LABEL: func.func @summed
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "%P into %C", "associativity: a reduction of a reduction is one over all axes"
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "[b, k] of %C as [b_k, k_within]", "a sum over pieces of an axis, of sums over each", "estimated
// CHECK-NEXT:  %A_pieces = diagram.expand %A k as [k_piece, k_within] : tensor<?x?x1024xf16, #diagram.array<[b, m, k]>> -> tensor<?x?x16x64xf16, #diagram.array<[b, m, k_piece, k_within]>>
// CHECK-NEXT:  %A_depth = diagram.read %A_pieces at "b_k // 16, m, b_k % 16, k_within" padded : tensor<?x?x16x64xf16, #diagram.array<[b, m, k_piece, k_within]>> -> tensor<?x?x64xf16, #diagram.array<[b_k, m, k_within]>>
// CHECK-NEXT:  %B_pieces = diagram.expand %B k as [k_piece, k_within]
// CHECK-NEXT:  %B_depth = diagram.read %B_pieces at "b_k // 16, b_k % 16, k_within, n" padded
// CHECK-NEXT:  %C = diagram.contract %A_depth, %B_depth over [b_k, k_within] accumulate f32
// CHECK-NEXT:  func.return %C
func.func @summed(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<b = 8, m = 4096, n = 4096>} {
  %P = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !P
  %C = diagram.reduce add %P over [b] : !P -> !C
  func.return %C : !C
}

!O = tensor<?x16x?x128xf16, #diagram.array<[b, h, q, d]>>
!W = tensor<16x128x2048xf16, #diagram.array<[h, d, o]>>
!Y = tensor<?x?x2048xf32, #diagram.array<[b, q, o]>>

// What a group holds whole along one axis, and is fed along the other, stays as it is, and it is said so.
// CHECK-LABEL: func.func @projection
// CHECK-SAME:    #hierarchy.step<"decline diagram-merge-depths", "[h, d]", "a tenth must be saved", "estimated
// CHECK-NEXT:  %Y = diagram.contract %O, %W over [h, d]
// ASKED-LABEL: func.func @projection
// ASKED-SAME:    #hierarchy.step<"diagram-merge-depths", "[h, d] of %Y as [h_d, d_within]", "a sum over pieces of an axis, of sums over each", "asked for">
// ASKED:       %O_depth = diagram.read %O_pieces at "b, h_d // 2, q, h_d % 2, d_within" padded {{.*}} -> tensor<?x32x?x64xf16, #diagram.array<[b, h_d, q, d_within]>>
// ASKED:       %Y = diagram.contract %O_depth, %W_depth over [h_d, d_within] accumulate f32
func.func @projection(%O: !O, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 4, q = 1024>} {
  %Y = diagram.contract %O, %W over [h, d] accumulate f32 : !O, !W -> !Y
  func.return %Y : !Y
}

!Ak = tensor<?x?x?xf16, #diagram.array<[b, m, k]>>
!Bk = tensor<?x?x?xf16, #diagram.array<[b, k, n]>>

// Of axes that are known only at launch no pieces are known.
// CHECK-LABEL: func.func @symbolic
// CHECK-SAME:    #hierarchy.step<"decline diagram-merge-depths", "[b, k]", "pieces of an axis are counted", "no size is known before launch: say that of 'b' or 'k', in the types or as --size k=...">
// CHECK:       %C = diagram.contract %A, %B over [b, k]
func.func @symbolic(%A: !Ak, %B: !Bk) -> !C attributes {sizes = #diagram.sizes<b = 8, m = 4096, n = 4096, k = 1024>} {
  %C = diagram.contract %A, %B over [b, k] accumulate f32 : !Ak, !Bk -> !C
  func.return %C : !C
}

!X = tensor<?x1024xf16, #diagram.array<[m, k]>>
!We = tensor<8x1024x?xf16, #diagram.array<[b, k, n]>>
!Pe = tensor<8x?x?xf32, #diagram.array<[b, m, n]>>
!ends = tensor<8xi32, #diagram.array<[b]>>

// Rows that are sorted by what they meet: of a factor other rows are there at each index, and each row knows its first
// and its last one.
// CHECK-LABEL: func.func @sorted
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "'first[b] <= m and m < end[b]' of %Q along b", "a condition holds between the first and the last position at which it does", "once for all groups">
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "%C", "what is absent of a product is absent of a factor that has the axes of the condition"
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "[b, k] of %C as [b_k, k_within]", "a sum over pieces of an axis, of sums over each", "estimated
// CHECK:         %least = diagram.reduce min %found over [b]
// CHECK:         %most = diagram.reduce max %found over [b]
// CHECK:         %We_depth = diagram.read %We_pieces at "b_k // 16, b_k % 16, k_within, n" padded
// CHECK:         %X_depth = diagram.read %X_pieces at "m, b_k % 16, k_within" padded : {{.*}} -> tensor<?x128x64xf16, #diagram.array<[m, b_k, k_within]>>
// CHECK-DAG:     %first_depth = diagram.read %first at "b_k // 16" padded
// CHECK-DAG:     %end_depth = diagram.read %end at "b_k // 16" padded
// CHECK:         %Q_rows = diagram.where %X_depth if "first_depth[b_k] <= m and m + 1 <= end_depth[b_k]" within "16 * first_b[m] <= b_k and b_k + 1 <= 16 * end_b[m]" with (first_depth = %first_depth
// CHECK-NEXT:    %C = diagram.contract %Q_rows, %We_depth over [b_k, k_within] accumulate f32
// CHECK-NEXT:    func.return %C
func.func @sorted(%X: !X, %We: !We, %first: !ends, %end: !ends) -> !C
    attributes {sizes = #diagram.sizes<m = 4096, n = 4096>} {
  %P = diagram.contract %X, %We over [k] accumulate f32 : !X, !We -> !Pe
  %Q = diagram.where %P if "first[b] <= m and m < end[b]" with (first = %first : !ends, end = %end : !ends) : !Pe
  %C = diagram.reduce add %Q over [b] : !Pe -> !C
  func.return %C : !C
}

!dC = tensor<?x512xf16, #diagram.array<[m, n]>>
!dCe = tensor<8x?x512xf32, #diagram.array<[b, m, n]>>
!dCh = tensor<8x?x512xf16, #diagram.array<[b, m, n]>>
!Wn = tensor<8x1024x512xf16, #diagram.array<[b, k, n]>>
!dX = tensor<?x1024xf32, #diagram.array<[m, k]>>

// So it is where the condition is one on a factor, on the way there converted and back: as the gradient of that has it.
// CHECK-LABEL: func.func @factor
// CHECK-SAME:    #hierarchy.step<"diagram-merge-depths", "[b, n] of %dX as [b_n, n_within]", "a sum over pieces of an axis, of sums over each", "estimated
// CHECK:         %dC_depth = diagram.read %dC_pieces at "m, b_n % 8, n_within" padded : {{.*}} -> tensor<?x64x64xf16, #diagram.array<[m, b_n, n_within]>>
// CHECK:         %Q_rows = diagram.where %dC_depth if "first_depth[b_n] <= m and m + 1 <= end_depth[b_n]" within "8 * first_b[m] <= b_n and b_n + 1 <= 8 * end_b[m]"
// CHECK:         %dX = diagram.contract %Q_rows, %Wn_depth over [b_n, n_within] accumulate f32
// CHECK-NEXT:    func.return %dX
func.func @factor(%dC: !dC, %Wn: !Wn, %first: !ends, %end: !ends) -> !dX attributes {sizes = #diagram.sizes<m = 4096>} {
  %P = diagram.map (%c = %dC : !dC) -> !dCe {
    %0 = arith.extf %c : f16 to f32
    diagram.yield %0 : f32
  }
  %Q = diagram.where %P if "first[b] <= m and m < end[b]" with (first = %first : !ends, end = %end : !ends) : !dCe
  %Qh = diagram.cast %Q : !dCe -> !dCh
  %dX = diagram.contract %Qh, %Wn over [b, n] accumulate f32 : !dCh, !Wn -> !dX
  func.return %dX : !dX
}
