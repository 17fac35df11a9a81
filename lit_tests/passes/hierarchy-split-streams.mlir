// RUN: xdsl-opt -p 'fusion,hierarchy-split-streams{parts=3}' %s | filecheck %s
// RUN: xdsl-opt -p 'set-machine{name=a100},fusion,hierarchy-split-streams' %s | filecheck %s --check-prefix AUTO
// RUN: xdsl-opt -p 'diagram-expand-laws,fusion,hierarchy-split-streams{length=128 kernel=at_launch}' %s | filecheck %s --check-prefix LENGTH

!A = tensor<?x1001xf16, #diagram.array<[m, k]>>
!B = tensor<1001x?xf16, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>

// 1001 is no multiple of 3: the last part is the longer one, and in the others its length is excluded.
// CHECK-LABEL: func.func @product
// CHECK-SAME:  #hierarchy.step<"hierarchy-split-streams", "k of @product into @product_parts and @product", "merge of %C", "3 parts of 333, the last of 335: asked for">
// CHECK:       %A_parts = diagram.read %A at "m, (333 * k_part + k_in)" : {{.*}} -> tensor<3x?x335xf16, #diagram.array<[k_part, m, k_in]>>
// CHECK:       %B_parts = diagram.read %B at "(333 * k_part + k_in), n" : {{.*}} -> tensor<3x335x?xf16, #diagram.array<[k_part, k_in, n]>>
// CHECK:       %C_parts = hierarchy.kernel @product_parts (%[[A:.*]] = %A_parts : {{.*}}, %[[B:.*]] = %B_parts : {{.*}}
// CHECK:         %[[THERE:.*]] = diagram.where %[[A]] if "k_in < 333 or 2 <= k_part"
// CHECK:         %[[C:.*]] = diagram.contract %[[THERE]], %[[B]] over [k_in] accumulate f32
// CHECK:         hierarchy.yield %[[C]] : tensor<3x?x?xf32, #diagram.array<[k_part, m, n], level = register>>
// CHECK:       %{{.*}} = hierarchy.kernel @product (%[[PARTS:.*]] = %C_parts :
// CHECK:         diagram.reduce add %[[PARTS]] over [k_part]
// Unasked, several lengths are tried, and both kernels together save a tenth of the time.
// AUTO-LABEL: func.func @product
// AUTO-SAME:  "decline hierarchy-split-streams", "@product along k", "two kernels must save a tenth", "estimated {{[0-9.]+}} us in parts of 77, {{[0-9.]+}} us in parts of 166, {{[0-9.]+}} us whole; at m = 128, n = 128 {{[0-9.]+}} us, {{[0-9.]+}} us, {{[0-9.]+}} us"
// AUTO-LABEL: func.func @long_product
// AUTO-SAME:  "25 parts of 320: 4 groups leave places of the machine empty; estimated {{[0-9.]+}} us in parts of 320, {{.*}} us whole; at m = 128, n = 128
func.func @product(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<m = 64, n = 64>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}

!X = tensor<?x900xf32, #diagram.array<[i, x]>>
!r = tensor<?xf32, #diagram.array<[i]>>

// In a part zero stands for a maximum that is -inf, so that the sum is of what the elements add. It is repaired to the
// maximum of all parts, by a power that is 0 where the part had nothing; of a row of nothing the merge says at last that it
// has no number.
// CHECK-LABEL: func.func @sum_exp
// CHECK:       hierarchy.kernel @sum_exp_parts
// CHECK:         %[[LOCAL:.*]] = diagram.reduce max %{{.*}} over [x_in]
// CHECK:         %[[SAFE:m_safe]] = diagram.map (%[[L:.*]] = %[[LOCAL]] :
// CHECK:           %[[NONE:.*]] = arith.constant 0xff800000 : f32
// CHECK:           %[[IS:.*]] = arith.cmpf oeq, %[[L]], %[[NONE]]
// CHECK:           %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:           arith.select %[[IS]], %[[ZERO]], %[[L]]
// CHECK:         diagram.map ({{.*}}%{{.*}} = %[[SAFE]] :
// CHECK:         %[[SUM:.*]] = diagram.reduce add %{{.*}} over [x_in]
// CHECK:         hierarchy.yield %[[SUM]], %[[LOCAL]]
// CHECK:       hierarchy.kernel @sum_exp (
// CHECK:         %m = diagram.reduce max %[[M:m_parts.*]] over [x_part]
// CHECK:         %[[SAFE:m_safe]] = diagram.map (%{{.*}} = %m :
// CHECK:         %l_repaired = diagram.map (%[[LP:.*]] = %{{l_parts.*}} : {{.*}}, %[[MP:.*]] = %[[M]] : {{.*}}, %[[NEW:.*]] = %[[SAFE]] :
// CHECK:           %[[MOVED:.*]] = arith.subf %[[MP]], %[[NEW]]
// CHECK:           %[[FACTOR:.*]] = math.exp %[[MOVED]]
// CHECK:           arith.mulf %[[LP]], %[[FACTOR]]
// CHECK:         %[[WHOLE:.*]] = diagram.reduce add %l_repaired over [x_part]
// CHECK:         %[[TOLD:.*]] = diagram.map (%[[END:.*]] = %m : {{.*}}, %[[LE:.*]] = %[[WHOLE]] :
// CHECK:           %[[NONE:.*]] = arith.constant 0xff800000 : f32
// CHECK:           %[[IS:.*]] = arith.cmpf oeq, %[[END]], %[[NONE]]
// CHECK:           %[[NAN:.*]] = arith.constant 0x7fc00000 : f32
// CHECK:           arith.select %[[IS]], %[[NAN]], %[[LE]]
// CHECK:         hierarchy.yield %[[TOLD]]
func.func @sum_exp(%X: !X) -> !r attributes {sizes = #diagram.sizes<i = 8>} {
  %m = diagram.reduce max %X over [x] : !X -> !r
  %e = diagram.map (%a = %X : !X, %b = %m : !r) -> !X {
    %t = arith.subf %a, %b : f32
    %y = math.exp %t : f32
    diagram.yield %y : f32
  }
  %l = diagram.reduce add %e over [x] : !X -> !r
  func.return %l : !r
}

!Y = tensor<?x?xf32, #diagram.array<[i, y]>>
!t = tensor<?xf32, #diagram.array<[i]>>

// Of a size that only the launch tells the parts have a length, and the launch counts them: the last is told by their number.
// LENGTH-LABEL: func.func @at_launch
// LENGTH-SAME:  "parts of 128, the last one longer by what is left over: asked for"
// LENGTH:       %[[N:.*]] = diagram.extent "y" : i32
// LENGTH:       %Y_parts = diagram.read %Y at "i, (128 * y_part + y_in)" : {{.*}} -> tensor<?x?x?xf32, #diagram.array<[y_part, i, y_in]>>
// LENGTH:       hierarchy.kernel @at_launch_parts (%[[Y:.*]] = %Y_parts :
// LENGTH:         %[[PARTS:.*]] = diagram.extent "y_part" : i32
// LENGTH:         %[[THERE:.*]] = diagram.where %[[Y]] if "y_in < 128 or parts - 1 <= y_part" with (parts = %[[PARTS]] : i32)
// LENGTH:         diagram.reduce add %[[THERE]] over [y_in]
// LENGTH:       hierarchy.kernel @at_launch ({{.*}}%{{.*}} = %[[N]] : i32
// LENGTH:         diagram.reduce add %{{.*}} over [y_part]
func.func @at_launch(%Y: !Y) -> !t attributes {sizes = #diagram.sizes<i = 8, y = 300>} {
  %mean = diagram.apply @mean(%Y) over [y] : (!Y) -> !t
  func.return %mean : !t
}

!D = tensor<?x8000xf16, #diagram.array<[m, j]>>
!E = tensor<8000x?xf16, #diagram.array<[j, n]>>

func.func @long_product(%D: !D, %E: !E) -> !C attributes {sizes = #diagram.sizes<m = 64, n = 64>} {
  %C = diagram.contract %D, %E over [j] accumulate f32 : !D, !E -> !C
  func.return %C : !C
}

!F = tensor<?x300xf16, #diagram.array<[m, u]>>
!G = tensor<?x?xf16, #diagram.array<[g, n]>>
!H = tensor<300x?xf16, #diagram.array<[u, n]>>

// A view at quotients is not read again: its array is, at whole blocks of each part.
// CHECK-LABEL: func.func @blocks
// CHECK:       %H_parts = diagram.read %G at "50 * u_part + u_in // 2, n" padded
func.func @blocks(%F: !F, %G: !G) -> !C attributes {sizes = #diagram.sizes<m = 64, n = 64, g = 150>} {
  %H = diagram.read %G at "u // 2, n" padded : !G -> !H
  %C = diagram.contract %F, %H over [u] accumulate f32 : !F, !H -> !C
  func.return %C : !C
}
