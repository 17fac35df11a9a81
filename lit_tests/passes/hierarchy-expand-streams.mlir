// RUN: xdsl-opt -p 'hierarchy-expand-streams' %s | filecheck %s

!Q = tensor<?x16xf16, #diagram.array<[q, d], level = device>>
!K = tensor<?x16xf16, #diagram.array<[x, d], level = device>>
!V = tensor<?x24xf16, #diagram.array<[x, e], level = device>>
!S = tensor<?x?xf32, #diagram.array<[q, x], level = register>>
!P = tensor<?x?xf16, #diagram.array<[q, x], level = register>>
!r = tensor<?xf32, #diagram.array<[q], level = register>>
!A = tensor<?x24xf32, #diagram.array<[q, e], level = register>>
!O = tensor<?x24xf16, #diagram.array<[q, e], level = register>>

// Online softmax, from plain max, exp, sum, product and division: the state is a maximum, a sum and a product,
// and when the maximum moves the other two are repaired: by 0 from -inf on, where they are 0 as well. Where the maximum is -inf
// at the end though x has an element, the
// quotient is 0/0, no number, as in the formula: nothing has to be said of the sums.
// CHECK-LABEL: hierarchy.kernel @online
// CHECK-SAME:    saves (%O_to: memref<?x24xf16, #diagram.array<[q, e], level = device>>)
// CHECK-NEXT:    hierarchy.group [q = 32] {
// CHECK-NEXT:      %[[Q:.*]] = hierarchy.load %Qk : {{.*}} -> tensor<32x16xf16, #diagram.array<[q, d], level = shared>>
// CHECK-NEXT:      %[[O:.*]] = hierarchy.stream [x = 48] -> (tensor<32x24xf16, #diagram.array<[q, e], level = register>>) initialise {
// CHECK-NEXT:        %m_start = diagram.fill 0xff800000 : f32
// CHECK-NEXT:        %l_start = diagram.fill 0.000000e+00 : f32
// CHECK-NEXT:        %A_start = diagram.fill 0.000000e+00 : f32
// CHECK-NEXT:        hierarchy.yield %m_start, %l_start, %A_start
// CHECK-NEXT:      } step (%m_so_far: {{.*}}, %l_so_far: {{.*}}, %A_so_far: {{.*}}) {
// CHECK-NEXT:        %Kk_piece = hierarchy.load %Kk : {{.*}} -> tensor<48x16xf16, #diagram.array<[x, d], level = shared>>
// CHECK-NEXT:        %S = diagram.contract %[[Q]], %Kk_piece over [d]
// CHECK-NEXT:        %m_new = diagram.reduce max %S over [x] into %m_so_far
// CHECK-NEXT:        %m_safe = diagram.map (%{{.*}} = %m_new : {{.*}})
// CHECK:             %E = diagram.map (%{{.*}} = %S : {{.*}}, %{{.*}} = %m_safe : {{.*}})
// CHECK:             %repair = diagram.map (%[[before:.*]] = %m_so_far : {{.*}}, %[[now:.*]] = %m_safe : {{.*}})
// CHECK-NEXT:          %[[d:.*]] = arith.subf %[[before]], %[[now]] : f32
// CHECK-NEXT:          math.exp %[[d]] : f32
// CHECK:             %l_repaired = diagram.map (%[[l:.*]] = %l_so_far : {{.*}}, %[[f:.*]] = %repair : {{.*}})
// CHECK-NEXT:          arith.mulf %[[l]], %[[f]] : f32
// CHECK:             %l_new = diagram.reduce add %E over [x] into %l_repaired
// CHECK-NEXT:        %P = diagram.cast %E
// CHECK-NEXT:        %Vk_piece = hierarchy.load %Vk : {{.*}} -> tensor<48x24xf16, #diagram.array<[x, e], level = shared>>
// CHECK-NEXT:        %A_repaired = diagram.map (%[[a:.*]] = %A_so_far : {{.*}}, %[[f:.*]] = %repair : {{.*}})
// CHECK-NEXT:          arith.mulf %[[a]], %[[f]] : f32
// CHECK:             %A_new = diagram.contract %P, %Vk_piece over [x] accumulate f32 into %A_repaired
// CHECK-NEXT:        hierarchy.yield %m_new, %l_new, %A_new
// CHECK-NEXT:      } finish (%m_end: {{.*}}, %l_end: {{.*}}, %A_end: {{.*}}) {
// CHECK-NEXT:        %[[o:.*]] = diagram.map (%[[a:.*]] = %A_end : {{.*}}, %[[l:.*]] = %l_end : {{.*}})
// CHECK-NEXT:          arith.divf %[[a]], %[[l]] : f32
// CHECK:             hierarchy.yield %[[o]]
// CHECK:           hierarchy.save %[[O]] into %O_to
// CHECK:         hierarchy.yield
func.func @online(%Q: tensor<?x16xf16, #diagram.array<[q, d]>>, %K: tensor<?x16xf16, #diagram.array<[x, d]>>,
                  %V: tensor<?x24xf16, #diagram.array<[x, e]>>) -> tensor<?x24xf16, #diagram.array<[q, e]>> {
  %O = hierarchy.kernel @online (%Qk = %Q : tensor<?x16xf16, #diagram.array<[q, d]>> as !Q,
      %Kk = %K : tensor<?x16xf16, #diagram.array<[x, d]>> as !K, %Vk = %V : tensor<?x24xf16, #diagram.array<[x, e]>> as !V)
      -> (tensor<?x24xf16, #diagram.array<[q, e]>>)
      schedule #hierarchy.schedule<group = [q = 32], stream = [x = 48], whole = [d = 16, e = 24]> {
    %S = diagram.contract %Qk, %Kk over [d] accumulate f32 : !Q, !K -> !S
    %m = diagram.reduce max %S over [x] : !S -> !r
    %E = diagram.map (%s = %S : !S, %r = %m : !r) -> !S {
      %d = arith.subf %s, %r : f32
      %e = math.exp %d : f32
      diagram.yield %e : f32
    }
    %l = diagram.reduce add %E over [x] : !S -> !r
    %P = diagram.cast %E : !S -> !P
    %A = diagram.contract %P, %Vk over [x] accumulate f32 : !P, !V -> !A
    %O = diagram.map (%a = %A : !A, %b = %l : !r) -> !O {
      %c = arith.divf %a, %b : f32
      %h = arith.truncf %c : f32 to f16
      diagram.yield %h : f16
    }
    hierarchy.yield %O : !O
  }
  func.return %O : tensor<?x24xf16, #diagram.array<[q, e]>>
}

!X = tensor<?x?xf32, #diagram.array<[i, j], level = device>>
!Y = tensor<?x?xf32, #diagram.array<[i, j], level = register>>
!s = tensor<?xf32, #diagram.array<[i], level = register>>

// A result with the streamed axis needs the finished sum: a second stream, without state, makes and saves it.
// CHECK-LABEL: hierarchy.kernel @shares
// CHECK:           %t = hierarchy.stream [j = 16] -> ({{.*}}) initialise {
// CHECK:             %[[x:.*]] = hierarchy.load %Xk
// CHECK-NEXT:        %t_new = diagram.reduce add %[[x]] over [j] into %t_so_far
// CHECK:           hierarchy.stream [j = 16] initialise {
// CHECK-NEXT:        hierarchy.yield
// CHECK-NEXT:      } step {
// CHECK-NEXT:        %[[x:.*]] = hierarchy.load %Xk
// CHECK-NEXT:        %[[y:.*]] = diagram.map (%{{.*}} = %[[x]] : {{.*}}, %{{.*}} = %t : {{.*}})
// CHECK:             hierarchy.save %[[y]] into %Y_to
// CHECK-NEXT:        hierarchy.yield
// CHECK-NEXT:      } finish {
func.func @shares(%X: tensor<?x?xf32, #diagram.array<[i, j]>>) -> tensor<?x?xf32, #diagram.array<[i, j]>> {
  %Y = hierarchy.kernel @shares (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X)
      -> (tensor<?x?xf32, #diagram.array<[i, j]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %t = diagram.reduce add %Xk over [j] : !X -> !s
    %Y = diagram.map (%a = %Xk : !X, %b = %t : !s) -> !Y {
      %c = arith.divf %a, %b : f32
      diagram.yield %c : f32
    }
    hierarchy.yield %Y : !Y
  }
  func.return %Y : tensor<?x?xf32, #diagram.array<[i, j]>>
}

!Z = tensor<?x?xf32, #diagram.array<[q, x], level = register>>
!z = tensor<?xf32, #diagram.array<[q], level = register>>
!G = tensor<?x?xf32, #diagram.array<[q, x], level = device>>
!g = tensor<?xf32, #diagram.array<[q], level = register>>

// What is chosen by whether the maximum is still -inf is decided in a step, where a number stands for it then: %P is %e.
// CHECK-LABEL: hierarchy.kernel @choice
// CHECK:             %m_new = diagram.reduce max %Xk_piece over [x] into %m_so_far
// CHECK:             %e = diagram.map (%a = %Xk_piece : {{.*}}, %r = %m_safe : {{.*}})
// CHECK-NOT:         arith.select
// CHECK:             %s_new = diagram.reduce add %e over [x] into %s_repaired
// CHECK:           } finish (%m_end: {{.*}}, %s_end: {{.*}}) {
// CHECK-NEXT:        hierarchy.yield %s_end
func.func @choice(%X: tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> {
  %s = hierarchy.kernel @choice (%Xk = %X : tensor<?x?xf32, #diagram.array<[q, x]>> as !G)
      -> (tensor<?xf32, #diagram.array<[q]>>) schedule #hierarchy.schedule<group = [q = 8], stream = [x = 16]> {
    %m = diagram.reduce max %Xk over [x] : !G -> !z
    %e = diagram.map (%a = %Xk : !G, %r = %m : !z) -> !Z {
      %d = arith.subf %a, %r : f32
      %p = math.exp %d : f32
      diagram.yield %p : f32
    }
    %P = diagram.map (%a = %e : !Z, %r = %m : !z) -> !Z {
      %zero = arith.constant 0.0 : f32
      %bottom = arith.constant 0xFF800000 : f32
      %none = arith.cmpf oeq, %r, %bottom : f32
      %p = arith.select %none, %zero, %a : f32
      diagram.yield %p : f32
    }
    %s = diagram.reduce add %P over [x] : !Z -> !z
    hierarchy.yield %s : !z
  }
  func.return %s : tensor<?xf32, #diagram.array<[q]>>
}

// So is what is chosen by an array that is made of the maximum.
// CHECK-LABEL: hierarchy.kernel @choice_by_a_scale
// CHECK:             %m_new = diagram.reduce max %Xk_piece over [x] into %m_so_far
// CHECK:             %h = diagram.map (%{{.*}} = %m_safe : {{.*}})
// CHECK:             %e = diagram.map (%a = %Xk_piece : {{.*}}, %r = %h : {{.*}})
// CHECK-NOT:         arith.select
// CHECK:             %s_new = diagram.reduce add %e over [x] into %s_repaired
// CHECK:           } finish (%m_end: {{.*}}, %s_end: {{.*}}) {
// CHECK-NEXT:        hierarchy.yield %s_end
func.func @choice_by_a_scale(%X: tensor<?x?xf32, #diagram.array<[q, x]>>) -> tensor<?xf32, #diagram.array<[q]>> {
  %s = hierarchy.kernel @choice_by_a_scale (%Xk = %X : tensor<?x?xf32, #diagram.array<[q, x]>> as !G)
      -> (tensor<?xf32, #diagram.array<[q]>>) schedule #hierarchy.schedule<group = [q = 8], stream = [x = 16]> {
    %m = diagram.reduce max %Xk over [x] : !G -> !z
    %h = diagram.map (%r = %m : !z) -> !z {
      %half = arith.constant 0.5 : f32
      %p = arith.mulf %r, %half : f32
      diagram.yield %p : f32
    }
    %e = diagram.map (%a = %Xk : !G, %r = %h : !z) -> !Z {
      %half = arith.constant 0.5 : f32
      %b = arith.mulf %a, %half : f32
      %d = arith.subf %b, %r : f32
      %p = math.exp %d : f32
      diagram.yield %p : f32
    }
    %P = diagram.map (%a = %e : !Z, %r = %h : !z) -> !Z {
      %zero = arith.constant 0.0 : f32
      %bottom = arith.constant 0xFF800000 : f32
      %none = arith.cmpf oeq, %r, %bottom : f32
      %p = arith.select %none, %zero, %a : f32
      diagram.yield %p : f32
    }
    %s = diagram.reduce add %P over [x] : !Z -> !z
    hierarchy.yield %s : !z
  }
  func.return %s : tensor<?xf32, #diagram.array<[q]>>
}

!b = tensor<?x?xi32, #diagram.array<[k, l]>>
!B = tensor<?x?xi32, #diagram.array<[i, j]>>
!Bd = tensor<?x?xi32, #diagram.array<[i, j], level = device>>

// A table of blocks leaves out pieces: a cell of 8 x 16 has one value, so where that is 1 nothing is tested in a step.
// CHECK-LABEL: func.func @blocks
// CHECK-SAME:    "fed pieces in which 'Bk[i, j] == 1' may hold, asked once for each cell of i = 8, j = 16"
// CHECK:         hierarchy.group [i = 8] {
// CHECK-NEXT:      %[[zero:.*]] = arith.constant 0 : index
// CHECK-NEXT:      %j_first, %j_end = hierarchy.piece "j" : index, index
// CHECK-NEXT:      %pieces = hierarchy.select [j = 16] from %[[zero]] to %j_end if "Bk[i, j] == 1" with (Bk = %Bk : tensor<?x?xi32, {{.*}}>) cells [i = 8, j = 16] room 1024
// CHECK-NEXT:      %t_1 = hierarchy.stream [j = 16] from %[[zero]] to %j_end whole from %[[zero]] to %j_end among %pieces ->
// CHECK:           } step (%t_so_far: {{.*}}) {
// CHECK-NEXT:        %Xk_piece = hierarchy.load %Xk
// CHECK-NEXT:        %t_new = diagram.reduce add %Xk_piece over [j] into %t_so_far
// CHECK:           } border (%t_so_far: {{.*}}) {
// CHECK:             %W = diagram.where %Xk_piece if "b[i, j] == 1" with (b = %Bk_piece : {{.*}})
func.func @blocks(%X: tensor<?x?xf32, #diagram.array<[i, j]>>, %table: !b) -> tensor<?xf32, #diagram.array<[i]>> {
  %B = diagram.read %table at "i // 8, j // 32" padded : !b -> !B
  %t = hierarchy.kernel @blocks (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X, %Bk = %B : !B as !Bd)
      -> (tensor<?xf32, #diagram.array<[i]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %W = diagram.where %Xk if "b[i, j] == 1" with (b = %Bk : !Bd) : !X -> !Y
    %t = diagram.reduce add %W over [j] : !Y -> !s
    hierarchy.yield %t : !s
  }
  func.return %t : tensor<?xf32, #diagram.array<[i]>>
}

// Where a cell is one element nothing is told.
// CHECK-LABEL: func.func @elements
// CHECK-SAME:    "decline hierarchy-expand-streams", "stream 1 of @elements along j", "a cell of a table has one value", "of a table alone no piece can be told to count for nothing"
// CHECK-NOT:     hierarchy.select
func.func @elements(%X: tensor<?x?xf32, #diagram.array<[i, j]>>, %table: !b) -> tensor<?xf32, #diagram.array<[i]>> {
  %B = diagram.read %table at "i, j // 3" padded : !b -> !B
  %t = hierarchy.kernel @elements (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X, %Bk = %B : !B as !Bd)
      -> (tensor<?xf32, #diagram.array<[i]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %W = diagram.where %Xk if "b[i, j] == 1" with (b = %Bk : !Bd) : !X -> !Y
    %t = diagram.reduce add %W over [j] : !Y -> !s
    hierarchy.yield %t : !s
  }
  func.return %t : tensor<?xf32, #diagram.array<[i]>>
}

// A quotient limits a stream by where it is largest or smallest in the piece of the group. A remainder is largest where
// as many positions after the first as there are make it so, if that is not the largest of all.
// CHECK-LABEL: func.func @quotients
// CHECK-SAME:    "fed j from 16 floor((i_first) / 12) - 16 to floor((i_end + (most i % 3) - 1) / 2) + 1; every other element is absent"
// CHECK:         hierarchy.group [i = 8] {
// CHECK:           %i_first, %i_end = hierarchy.piece "i" : index, index
// CHECK:           %[[twelve:.*]] = arith.constant 12 : index
// CHECK-NEXT:      %[[block:.*]] = arith.floordivsi %i_first, %[[twelve]] : index
// CHECK:           %[[sixteen:.*]] = arith.constant 16 : index
// CHECK-NEXT:      %[[blocks:.*]] = arith.muli %[[block]], %[[sixteen]] : index
// CHECK:           %[[low:.*]] = arith.addi %[[blocks]], %{{.*}} : index
// CHECK:           %[[last:.*]] = arith.addi %i_end, %{{.*}} : index
// CHECK:           %[[between:.*]] = arith.subi %[[last]], %i_first : index
// CHECK:           arith.floordivsi %i_first, %[[three:.*]] : index
// CHECK:           %[[rest:.*]] = arith.subi %i_first, %{{.*}} : index
// CHECK-NEXT:      %[[grown:.*]] = arith.addi %[[rest]], %[[between]] : index
// CHECK:           arith.minsi %[[grown]], %{{.*}} : index
// CHECK:           hierarchy.stream [j = 16] from %[[low]] to
func.func @quotients(%X: tensor<?x?xf32, #diagram.array<[i, j]>>) -> tensor<?xf32, #diagram.array<[i]>> {
  %t = hierarchy.kernel @quotients (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X)
      -> (tensor<?xf32, #diagram.array<[i]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %W = diagram.where %Xk if "i // 12 - j // 16 <= 1 and 2 * j <= i + i % 3" : !X -> !Y
    %t = diagram.reduce add %W over [j] : !Y -> !s
    hierarchy.yield %t : !s
  }
  func.return %t : tensor<?xf32, #diagram.array<[i]>>
}

// Of distances that come again at 64, pieces of 8 x 16 hold 23: most pieces are left out.
// CHECK-LABEL: func.func @strided
// CHECK-SAME:    "fed pieces in which '(i - j) % 64 <= 0 or i <= j + 4' may hold, asked once for each cell of i = 8, j = 16"
// CHECK:         %pieces = hierarchy.select [j = 16] from %{{.*}} to %{{.*}} if "(i - j) % 64 <= 0 or i <= j + 4" cells [i = 8, j = 16] room 1024
// CHECK-NEXT:    hierarchy.stream [j = 16] from {{.*}} among %pieces ->
// Of those at 24 nearly all pieces have one.
// CHECK-LABEL: func.func @often
// CHECK-NOT:     hierarchy.select
func.func @strided(%X: tensor<?x?xf32, #diagram.array<[i, j]>>) -> tensor<?xf32, #diagram.array<[i]>> {
  %t = hierarchy.kernel @strided (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X)
      -> (tensor<?xf32, #diagram.array<[i]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %W = diagram.where %Xk if "j <= i and ((i - j) % 64 == 0 or i - j < 5)" : !X -> !Y
    %t = diagram.reduce add %W over [j] : !Y -> !s
    hierarchy.yield %t : !s
  }
  func.return %t : tensor<?xf32, #diagram.array<[i]>>
}
func.func @often(%X: tensor<?x?xf32, #diagram.array<[i, j]>>) -> tensor<?xf32, #diagram.array<[i]>> {
  %t = hierarchy.kernel @often (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X)
      -> (tensor<?xf32, #diagram.array<[i]>>) schedule #hierarchy.schedule<group = [i = 8], stream = [j = 16]> {
    %W = diagram.where %Xk if "(i - j) % 24 == 0" : !X -> !Y
    %t = diagram.reduce add %W over [j] : !Y -> !s
    hierarchy.yield %t : !s
  }
  func.return %t : tensor<?xf32, #diagram.array<[i]>>
}

!heads_Q = tensor<?x?x16xf16, #diagram.array<[h, q, d]>>
!heads_K = tensor<?x?x16xf16, #diagram.array<[h, x, d]>>
!heads_word = tensor<?xf32, #diagram.array<[h]>>
!heads_half = tensor<?xf16, #diagram.array<[h]>>
!heads_row = tensor<?x?xf32, #diagram.array<[h, q]>>
!near_Q = tensor<?x?x16xf16, #diagram.array<[h, q, d], level = device>>
!near_K = tensor<?x?x16xf16, #diagram.array<[h, x, d], level = device>>
!near_word = tensor<?xf32, #diagram.array<[h], level = device>>
!near_half = tensor<?xf16, #diagram.array<[h], level = device>>
!near_row = tensor<?x?xf32, #diagram.array<[h, q], level = device>>
!near_S = tensor<?x?x?xf32, #diagram.array<[h, q, x], level = register>>
!near_m = tensor<?x?xf32, #diagram.array<[h, q], level = register>>

// A word of a group, and one for each of its rows, come to shared memory once for the block, with what products read.
// Narrower numbers are loaded, which no lane copies asynchronously.
// CHECK-LABEL: func.func @words
// CHECK-DAG:     hierarchy.load %slope_in : {{.*}} -> tensor<1xf32, #diagram.array<[h], level = shared>>
// CHECK-DAG:     hierarchy.load %half_in : {{.*}} -> tensor<1xf16, #diagram.array<[h], level = register>>
// CHECK-DAG:     hierarchy.load %row_in : {{.*}} -> tensor<1x32xf32, #diagram.array<[h, q], level = shared>>
func.func @words(%Q: !heads_Q, %K: !heads_K, %slope: !heads_word, %half: !heads_half, %row: !heads_row) -> !heads_row {
  %m = hierarchy.kernel @words (%Q_in = %Q : !heads_Q as !near_Q, %K_in = %K : !heads_K as !near_K,
      %slope_in = %slope : !heads_word as !near_word, %half_in = %half : !heads_half as !near_half,
      %row_in = %row : !heads_row as !near_row) -> (!heads_row)
      schedule #hierarchy.schedule<group = [h = 1, q = 32], stream = [x = 48], whole = [d = 16], warps = [q = 2]> {
    %S = diagram.contract %Q_in, %K_in over [d] accumulate f32 : !near_Q, !near_K -> !near_S
    %T = diagram.map (%s = %S : !near_S, %a = %slope_in : !near_word, %b = %half_in : !near_half, %c = %row_in : !near_row) -> !near_S {
      %w = arith.extf %b : f16 to f32
      %u = arith.mulf %s, %a : f32
      %v = arith.mulf %u, %w : f32
      %t = arith.addf %v, %c : f32
      diagram.yield %t : f32
    }
    %m = diagram.reduce max %T over [x] : !near_S -> !near_m
    hierarchy.yield %m : !near_m
  }
  func.return %m : !heads_row
}

// A sum of powers times distances from a maximum is increased by what these grow by, of the sum of the powers as it was,
// and then multiplied by the factor of that. While the maximum is neutral, and where it stays, there is none to add.
!ent_X = tensor<?x?xf32, #diagram.array<[i, x]>>
!ent_Xd = tensor<?x?xf32, #diagram.array<[i, x], level = device>>
!ent_Xr = tensor<?x?xf32, #diagram.array<[i, x], level = register>>
!ent_s = tensor<?xf32, #diagram.array<[i]>>
!ent_r = tensor<?xf32, #diagram.array<[i], level = register>>

// CHECK-LABEL: hierarchy.kernel @entropy
// CHECK:             %repair = diagram.map (%[[before:.*]] = %m_so_far : {{.*}}, %[[now:.*]] = %m_safe : {{.*}})
// CHECK-NEXT:          %[[d:.*]] = arith.subf %[[before]], %[[now]] : f32
// CHECK-NEXT:          math.exp %[[d]] : f32
// CHECK:             %[[more:.*]] = diagram.map (%[[now:.*]] = %m_safe : {{.*}}, %[[before:.*]] = %m_so_far : {{.*}}, %[[l:.*]] = %l_so_far : {{.*}})
// CHECK:               %[[none:.*]] = arith.cmpf oeq, %[[before]], %{{.*}} : f32
// CHECK-NEXT:          %[[was:.*]] = arith.select %[[none]], %[[now]], %[[before]] : f32
// CHECK-NEXT:          %[[moved:.*]] = arith.subf %[[now]], %[[was]] : f32
// CHECK:               %[[less:.*]] = arith.mulf %[[l]], %{{.*}} : f32
// CHECK-NEXT:          %[[grown:.*]] = arith.mulf %[[moved]], %[[less]] : f32
// CHECK-NEXT:          arith.select %{{.*}}, %{{.*}}, %[[grown]] : f32
// CHECK:             %[[added:.*]] = diagram.map (%[[y:.*]] = %y_so_far : {{.*}}, %[[s:.*]] = %[[more]] : {{.*}})
// CHECK-NEXT:          arith.addf %[[y]], %[[s]] : f32
// CHECK:             %[[scaled:.*]] = diagram.map (%[[y:.*]] = %[[added]] : {{.*}}, %[[f:.*]] = %repair : {{.*}})
// CHECK-NEXT:          arith.mulf %[[y]], %[[f]] : f32
// CHECK:             %y_new = diagram.reduce add %T over [x] into %[[scaled]]
func.func @entropy(%X: !ent_X) -> (!ent_s, !ent_s) {
  %L, %Y = hierarchy.kernel @entropy (%X_1 = %X : !ent_X as !ent_Xd) -> (!ent_s, !ent_s)
      schedule #hierarchy.schedule<group = [i = 8], stream = [x = 16]> {
    %m = diagram.reduce max %X_1 over [x] : !ent_Xd -> !ent_r
    %E = diagram.map (%s = %X_1 : !ent_Xd, %r = %m : !ent_r) -> !ent_Xr {
      %d = arith.subf %s, %r : f32
      %e = math.exp %d : f32
      diagram.yield %e : f32
    }
    %l = diagram.reduce add %E over [x] : !ent_Xr -> !ent_r
    %T = diagram.map (%s = %X_1 : !ent_Xd, %r = %m : !ent_r, %p = %E : !ent_Xr) -> !ent_Xr {
      %d = arith.subf %s, %r : f32
      %t = arith.mulf %p, %d : f32
      diagram.yield %t : f32
    }
    %y = diagram.reduce add %T over [x] : !ent_Xr -> !ent_r
    hierarchy.yield %l, %y : !ent_r, !ent_r
  }
  func.return %L, %Y : !ent_s, !ent_s
}

// A scan along the stream begins each piece with what its total is so far, from before the piece; it is saved piece by
// piece.
// CHECK-LABEL: hierarchy.kernel @prefix_sums
// CHECK-NEXT:    hierarchy.group [i = 8] {
// CHECK-NEXT:      hierarchy.stream [j = 32] initialise {
// CHECK-NEXT:        %t_start = diagram.fill 0.000000e+00 : f32
// CHECK-NEXT:        hierarchy.yield %t_start
// CHECK-NEXT:      } step (%t_so_far: {{.*}}) {
// CHECK-NEXT:        %[[X:.*]] = hierarchy.load %Xk : {{.*}} -> tensor<8x32xf32
// CHECK-NEXT:        %t_new = diagram.reduce add %[[X]] over [j] into %t_so_far
// CHECK-NEXT:        %[[C:.*]] = diagram.scan add %[[X]] over j into %t_so_far : tensor<8x32xf32
// CHECK-NEXT:        hierarchy.save %[[C]] into %C_to
// CHECK-NEXT:        hierarchy.yield %t_new
func.func @prefix_sums(%X: tensor<?x?xf32, #diagram.array<[i, j]>>) -> tensor<?x?xf32, #diagram.array<[i, j]>> {
  %C = hierarchy.kernel @prefix_sums (%Xk = %X : tensor<?x?xf32, #diagram.array<[i, j]>> as !X)
      -> (tensor<?x?xf32, #diagram.array<[i, j]>>)
      schedule #hierarchy.schedule<group = [i = 8], stream = [j = 32]> {
    %t = diagram.reduce add %Xk over [j] : !X -> !s
    %C = diagram.scan add %Xk over j total %t : !X, !s -> !Y
    hierarchy.yield %C : !Y
  }
  func.return %C : tensor<?x?xf32, #diagram.array<[i, j]>>
}

// In reverse it begins with nothing: what later pieces add is taken off what has been summed of it.
// CHECK-LABEL: hierarchy.kernel @stick_breaking
// CHECK:           %A = hierarchy.stream [x = 48]
// CHECK:             hierarchy.yield %t_start, %A_start
// CHECK-NEXT:      } step (%t_so_far: {{.*}}, %A_so_far: {{.*}}) {
// CHECK:             %l = diagram.map (%{{.*}} = %S
// CHECK:             %t_added = diagram.reduce add %l over [x] : tensor<32x48xf32
// CHECK-NEXT:        %t_new = diagram.map (%[[before:.*]] = %t_so_far : {{.*}}, %[[more:.*]] = %t_added : {{.*}})
// CHECK-NEXT:          arith.addf %[[before]], %[[more]] : f32
// CHECK:             %C = diagram.scan add %l over x reverse : tensor<32x48xf32
// CHECK-NEXT:        %P = diagram.map (%{{.*}} = %S : {{.*}}, %{{.*}} = %C : {{.*}})
// CHECK:             %repair = diagram.map (%[[more:.*]] = %t_added : {{.*}})
// CHECK-NEXT:          %[[less:.*]] = arith.negf %[[more]] : f32
// CHECK-NEXT:          math.exp %[[less]] : f32
// CHECK:             %A_repaired = diagram.map (%[[sum:.*]] = %A_so_far : {{.*}}, %[[f:.*]] = %repair : {{.*}})
// CHECK-NEXT:          arith.mulf %[[sum]], %[[f]] : f32
// CHECK:             %A_new = diagram.contract %P16, %Vk_piece over [x] accumulate f32 into %A_repaired
// CHECK-NEXT:        hierarchy.yield %t_new, %A_new
func.func @stick_breaking(%Q: tensor<?x16xf16, #diagram.array<[q, d]>>, %K: tensor<?x16xf16, #diagram.array<[x, d]>>,
                  %V: tensor<?x24xf16, #diagram.array<[x, e]>>) -> tensor<?x24xf32, #diagram.array<[q, e]>> {
  %O = hierarchy.kernel @stick_breaking (%Qk = %Q : tensor<?x16xf16, #diagram.array<[q, d]>> as !Q,
      %Kk = %K : tensor<?x16xf16, #diagram.array<[x, d]>> as !K, %Vk = %V : tensor<?x24xf16, #diagram.array<[x, e]>> as !V)
      -> (tensor<?x24xf32, #diagram.array<[q, e]>>)
      schedule #hierarchy.schedule<group = [q = 32], stream = [x = 48], whole = [d = 16, e = 24]> {
    %S = diagram.contract %Qk, %Kk over [d] accumulate f32 : !Q, !K -> !S
    %l = diagram.map (%s = %S : !S) -> !S {
      %e = math.exp %s : f32
      %r = math.log1p %e : f32
      diagram.yield %r : f32
    }
    %t = diagram.reduce add %l over [x] : !S -> !r
    %C = diagram.scan add %l over x reverse total %t : !S, !r -> !S
    %P = diagram.map (%s = %S : !S, %c = %C : !S) -> !S {
      %d = arith.subf %s, %c : f32
      %e = math.exp %d : f32
      diagram.yield %e : f32
    }
    %P16 = diagram.cast %P : !S -> !P
    %A = diagram.contract %P16, %Vk over [x] accumulate f32 : !P, !V -> !A
    hierarchy.yield %A : !A
  }
  func.return %O : tensor<?x24xf32, #diagram.array<[q, e]>>
}

!Given = tensor<?x?xf32, #diagram.array<[q, x], level = device>>
!positions = tensor<?xi32, #diagram.array<[x], level = register>>
!places = tensor<?x?xi32, #diagram.array<[q, x], level = register>>
!place = tensor<?xi32, #diagram.array<[q], level = register>>
!sums = tensor<?xf32, #diagram.array<[q]>>
!found = tensor<?xi32, #diagram.array<[q]>>
!Scores = tensor<?x?xf32, #diagram.array<[q, x]>>

// The first position of a maximum is neutral again where the maximum has moved; from a NaN on it stays.
// CHECK-LABEL: hierarchy.kernel @first
// CHECK:           %m_new = diagram.reduce max %{{.*}} over [x] into %m_so_far
// CHECK:           %repair = diagram.map (%[[now:.*]] = %m_new : {{.*}}, %[[before:.*]] = %m_so_far : {{.*}})
// CHECK-NEXT:        %[[same:.*]] = arith.cmpf oeq, %[[now]], %[[before]] : f32
// CHECK-NEXT:        %[[nan:.*]] = arith.cmpf une, %[[before]], %[[before]] : f32
// CHECK-NEXT:        %[[stays:.*]] = arith.ori %[[same]], %[[nan]] : i1
// CHECK:           %first_repaired = diagram.map (%[[stays:.*]] = %repair : {{.*}}, %[[first:.*]] = %first_so_far : {{.*}})
// CHECK:             arith.select %{{.*}}, %[[first]], %{{.*}} : i32
// CHECK:           %first_new = diagram.reduce min %F over [x] into %first_repaired
func.func @first(%S: !Scores) -> !found {
  %result = hierarchy.kernel @first (%T = %S : !Scores as !Given) -> (!found) schedule #hierarchy.schedule<group = [q = 4], stream = [x = 48]> {
    %n = diagram.index -> !positions
    %m = diagram.reduce max %T over [x] : !Given -> !r
    %F = diagram.map (%s = %T : !Given, %r = %m : !r, %x = %n : !positions) -> !places {
      %nowhere = arith.constant 2147483647 : i32
      %is = arith.cmpf oeq, %s, %r : f32
      %f = arith.select %is, %x, %nowhere : i32
      diagram.yield %f : i32
    }
    %first = diagram.reduce min %F over [x] : !places -> !place
    hierarchy.yield %first : !place
  }
  func.return %result : !found
}

// Beside powers it asks the maximum itself, for which zero stands in these while it is -inf.
// CHECK-LABEL: hierarchy.kernel @beside
// CHECK:           %m_new = diagram.reduce max %{{.*}} over [x] into %m_so_far
// CHECK:           %m_safe = diagram.map (%{{.*}} = %m_new : {{.*}})
// CHECK:           %E = diagram.map (%{{.*}} = %{{.*}} : {{.*}}, %{{.*}} = %m_safe : {{.*}})
// CHECK:           %F = diagram.map (%{{.*}} = %{{.*}} : {{.*}}, %{{.*}} = %m_new : {{.*}}, %{{.*}} = %n : {{.*}})
// CHECK:           diagram.map (%{{.*}} = %m_new : {{.*}}, %{{.*}} = %m_so_far : {{.*}})
// CHECK-NEXT:        arith.cmpf oeq
func.func @beside(%S: !Scores) -> (!sums, !found) {
  %sum, %result = hierarchy.kernel @beside (%T = %S : !Scores as !Given) -> (!sums, !found) schedule #hierarchy.schedule<group = [q = 4], stream = [x = 48]> {
    %n = diagram.index -> !positions
    %m = diagram.reduce max %T over [x] : !Given -> !r
    %E = diagram.map (%s = %T : !Given, %r = %m : !r) -> !S {
      %d = arith.subf %s, %r : f32
      %e = math.exp %d : f32
      diagram.yield %e : f32
    }
    %l = diagram.reduce add %E over [x] : !S -> !r
    %F = diagram.map (%s = %T : !Given, %r = %m : !r, %x = %n : !positions) -> !places {
      %nowhere = arith.constant 2147483647 : i32
      %is = arith.cmpf oeq, %s, %r : f32
      %f = arith.select %is, %x, %nowhere : i32
      diagram.yield %f : i32
    }
    %first = diagram.reduce min %F over [x] : !places -> !place
    hierarchy.yield %l, %first : !r, !place
  }
  func.return %sum, %result : !sums, !found
}

// A recurrence is fed one position after another; what lacks the axis is loaded before, and a product is a map and a sum.
// The state that leaves the step has no position: a product of one number is that number.
// CHECK-LABEL: hierarchy.kernel @recurrence
// CHECK-NEXT:    hierarchy.group [h = 2, e = 32] {
// CHECK-NEXT:      %g_piece = hierarchy.load %g : {{.*}} -> tensor<16xf32, #diagram.array<[d], level = register>>
// CHECK-NEXT:      %last = hierarchy.stream [t = 1] -> (tensor<2x16x32xf32, #diagram.array<[h, d, e], level = register>>) attributes {recurs} initialise {
// CHECK-NEXT:        %zero = diagram.fill 0.000000e+00 : f32 -> tensor<2x16x32xf32, #diagram.array<[h, d, e], level = register>>
// CHECK-NEXT:        hierarchy.yield %zero
// CHECK-NEXT:      } step (%last_so_far: {{.*}}) {
// CHECK-NEXT:        %k_piece = hierarchy.load %k : {{.*}} -> tensor<2x1x16xf16, #diagram.array<[h, t, d], level = register>>
// CHECK-NEXT:        %v_piece = hierarchy.load %v : {{.*}} -> tensor<2x1x32xf32, #diagram.array<[h, t, e], level = register>>
// CHECK-NEXT:        %after = diagram.map (%{{.*}} = %last_so_far : {{.*}}, %{{.*}} = %v_piece : {{.*}}, %{{.*}} = %g_piece : {{.*}}) -> tensor<1x2x16x32xf32, #diagram.array<[t, h, d, e], level = register>> {
// CHECK:             %low = diagram.cast %after
// CHECK-NEXT:        %read = diagram.map (%[[a:.*]] = %k_piece : {{.*}}, %[[b:.*]] = %low : {{.*}}) -> tensor<1x2x16x32xf32, #diagram.array<[t, h, d, e], level = register>> {
// CHECK-NEXT:          %[[v:.*]] = arith.extf %[[a]] : f16 to f32
// CHECK-NEXT:          %[[w:.*]] = arith.extf %[[b]] : f16 to f32
// CHECK-NEXT:          %[[p:.*]] = arith.mulf %[[v]], %[[w]] : f32
// CHECK-NEXT:          diagram.yield %[[p]] : f32
// CHECK-NEXT:        }
// CHECK-NEXT:        %[[read:.*]] = diagram.reduce add %read over [d] : {{.*}} -> tensor<2x1x32xf32, #diagram.array<[h, t, e], level = register>>
// CHECK-NEXT:        %[[new:.*]] = diagram.reduce mul %after over [t] : {{.*}} -> tensor<2x16x32xf32, #diagram.array<[h, d, e], level = register>>
// CHECK-NEXT:        hierarchy.save %[[read]] into %Y_to
// CHECK-NEXT:        hierarchy.yield %[[new]]
// CHECK-NEXT:      } finish (%last_end: {{.*}}) {
// CHECK-NEXT:        hierarchy.yield %last_end
// CHECK-NEXT:      }
// CHECK-NEXT:      hierarchy.save %last into %last_to
// CHECK-NEXT:    }
!RK = tensor<?x?x16xf16, #diagram.array<[h, t, d]>>
!RKd = tensor<?x?x16xf16, #diagram.array<[h, t, d], level = device>>
!RV = tensor<?x?x?xf32, #diagram.array<[h, t, e]>>
!RVd = tensor<?x?x?xf32, #diagram.array<[h, t, e], level = device>>
!RVr = tensor<?x?x?xf32, #diagram.array<[h, t, e], level = register>>
!RG = tensor<16xf32, #diagram.array<[d]>>
!RGd = tensor<16xf32, #diagram.array<[d], level = device>>
!RS = tensor<?x16x?xf32, #diagram.array<[h, d, e]>>
!RL = tensor<?x16x?xf16, #diagram.array<[h, d, e]>>
!RSr = tensor<?x16x?xf32, #diagram.array<[h, d, e], level = register>>
!Rk = tensor<?x16xf16, #diagram.array<[h, d]>>
!Rv = tensor<?x?xf32, #diagram.array<[h, e]>>
func.func @recurrences(%K: !RK, %V: !RV, %G: !RG) -> (!RS, !RV) {
  %L, %O = hierarchy.kernel @recurrence (%k = %K : !RK as !RKd, %v = %V : !RV as !RVd, %g = %G : !RG as !RGd) -> (!RS, !RV)
      schedule #hierarchy.schedule<group = [h = 2, e = 32], stream = [t = 1], whole = [d = 16], warps = [h = 2]> {
    %zero = diagram.fill 0.0 : f32 -> !RSr
    %last, %Y = diagram.recurrence over t (%s = %zero : !RSr) each (%a = %k : !RKd, %b = %v : !RVd, %c = %g : !RGd) -> (!RSr, !RVr) {
      %after = diagram.map (%x = %s : !RS, %y = %b : !Rv, %z = %c : !RG) -> !RS {
        %p = arith.mulf %x, %z : f32
        %q = arith.addf %p, %y : f32
        diagram.yield %q : f32
      }
      %low = diagram.cast %after : !RS -> !RL
      %read = diagram.contract %a, %low over [d] accumulate f32 : !Rk, !RL -> !Rv
      diagram.yield %after, %read : !RS, !Rv
    }
    hierarchy.yield %last, %Y : !RSr, !RVr
  }
  func.return %L, %O : !RS, !RV
}

// A state that meets a matrix is under another name of its axis at each position; the matrix is loaded before all of them.
// CHECK-LABEL: hierarchy.kernel @matrix
// CHECK-NEXT:    hierarchy.group [h = 2] {
// CHECK-NEXT:      %w_piece = hierarchy.load %w : {{.*}} -> tensor<16x16xf16, #diagram.array<[i, j], level = register>>
// CHECK:           } step (%last_so_far: {{.*}}) {
// CHECK:             %before = diagram.rename %last_so_far (j as i) : tensor<2x16xf32, #diagram.array<[h, j], level = register>> -> tensor<2x16xf32, #diagram.array<[h, i], level = register>>
// CHECK-NEXT:        %p = diagram.map (%{{.*}} = %before : {{.*}}, %[[w:.*]] = %w_piece : {{.*}}) -> tensor<16x16x2xf32, #diagram.array<[i, j, h], level = register>> {
// CHECK-NEXT:          arith.extf %[[w]] : f16 to f32
// CHECK:             diagram.reduce add %p over [i]
!MX = tensor<?x?x16xf32, #diagram.array<[h, t, j]>>
!MXd = tensor<?x?x16xf32, #diagram.array<[h, t, j], level = device>>
!MW = tensor<16x16xf16, #diagram.array<[i, j]>>
!MWd = tensor<16x16xf16, #diagram.array<[i, j], level = device>>
!Mw = tensor<16x16xf32, #diagram.array<[i, j]>>
!MS = tensor<?x16xf32, #diagram.array<[h, j]>>
!MB = tensor<?x16xf32, #diagram.array<[h, i]>>
!MSr = tensor<?x16xf32, #diagram.array<[h, j], level = register>>
func.func @matrices(%X: !MX, %W: !MW) -> !MS {
  %L = hierarchy.kernel @matrix (%x = %X : !MX as !MXd, %w = %W : !MW as !MWd) -> (!MS)
      schedule #hierarchy.schedule<group = [h = 2], stream = [t = 1], whole = [i = 16, j = 16], warps = [h = 2]> {
    %zero = diagram.fill 0.0 : f32 -> !MSr
    %last = diagram.recurrence over t (%s = %zero : !MSr) each (%a = %x : !MXd, %b = %w : !MWd) -> (!MSr) {
      %before = diagram.rename %s (j as i) : !MS -> !MB
      %c = diagram.cast %b : !MW -> !Mw
      %p = diagram.contract %before, %c over [i] accumulate f32 : !MB, !Mw -> !MS
      %after = diagram.map (%y = %p : !MS, %z = %a : !MS) -> !MS {
        %q = arith.addf %y, %z : f32
        diagram.yield %q : f32
      }
      diagram.yield %after : !MS
    }
    hierarchy.yield %last : !MSr
  }
  func.return %L : !MS
}
